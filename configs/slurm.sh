#!/bin/bash
# Two machines of eight GPUs under SLURM; runs/ is on a disk that both see:
#   sbatch configs/slurm.sh --recipe big --dataset wmt14 --output_dir runs/big
# A preempted job is sent SIGTERM two minutes before its end: it writes a checkpoint, is queued again and goes on from there.
#SBATCH --job-name=transformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
export FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 bash -c 'exec accelerate launch --config_file configs/multi_node.yaml \
    --machine_rank "$SLURM_PROCID" --main_process_ip "$FIRST" -m annotated_transformer.training --resume "$@"' transformer "$@"
