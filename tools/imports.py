"""Count the imports within the package: rooms (modules with code), floors, arrows, those that run upward, and circles.

    python tools/imports.py              every module is a room
    python tools/imports.py --folded     a sub-package is one room
    python tools/imports.py --list       the arrows too, one a line
"""
import argparse
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
import grimp

ROOT, PACKAGE = Path(__file__).resolve().parents[1], 'annotated_transformer'

def import_graph(graph, folded):
    "Room → rooms that it imports. Empty `__init__` files and nbdev's index are no rooms."
    def room(name):
        parts = name.split('.')[1:]
        return '.'.join(parts[:1] if folded else parts)
    rooms = {}
    for module in graph.modules - {PACKAGE, f'{PACKAGE}._modidx'}:
        if not folded and graph.find_children(module): continue
        imported = {room(m) for m in graph.find_modules_directly_imported_by(module) if m != PACKAGE}
        rooms.setdefault(room(module), set()).update(imported - {room(module)})
    return rooms

def layer_depths(rooms):
    "The floor of each room: one above the highest that it imports. Raises CycleError where there is none."
    floors = {}
    for name in TopologicalSorter(rooms).static_order():
        floors[name] = 1 + max((floors[m] for m in rooms.get(name, ())), default=0)
    return floors

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--folded', action='store_true', help='a sub-package is one room')
    parser.add_argument('--list', action='store_true', help='print the arrows')
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    rooms = import_graph(grimp.build_graph(PACKAGE, cache_dir=None), args.folded)
    if args.list:
        for name in sorted(rooms): print(f'{name}: {" ".join(sorted(rooms[name]))}')
    arrows = sum(map(len, rooms.values()))
    try: print(f'{len(rooms)} rooms, {max(layer_depths(rooms).values())} floors, {arrows} arrows, no circle')
    except CycleError as e: print(f'{len(rooms)} rooms, {arrows} arrows, a circle: {" → ".join(reversed(e.args[1]))}')

if __name__ == '__main__': main()
