"Everything that pip needs to know is in settings.ini; this file only passes it on."
import shlex
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

ini = ConfigParser(delimiters=['='])
ini.read('settings.ini', encoding='utf-8')
cfg = ini['DEFAULT']
pythons = [f'3.{minor}' for minor in range(int(cfg['min_python'].split('.')[1]), 14)]

setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'],
    long_description=Path('README.md').read_text(encoding='utf-8') if Path('README.md').exists() else '',
    long_description_content_type='text/markdown',
    author=cfg['author'], author_email=cfg['author_email'], url=cfg['git_url'], license='Apache-2.0',
    packages=find_packages(include=[cfg['lib_path'], cfg['lib_path'] + '.*']),
    python_requires='>=' + cfg['min_python'],
    install_requires=shlex.split(cfg['requirements']),
    extras_require={extra: shlex.split(cfg[f'{extra}_requirements']) for extra in ('dev', 'export', 'bench')},
    entry_points={'console_scripts': cfg['console_scripts'].split(),
                  'nbdev': [f'{cfg["lib_name"]}={cfg["lib_path"]}._modidx:d']},
    classifiers=['Development Status :: 3 - Alpha', 'Intended Audience :: Developers', 'Natural Language :: English']
        + [f'Programming Language :: Python :: {v}' for v in pythons],
    zip_safe=False,
)
