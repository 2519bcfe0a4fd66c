"Programs that run JavaScript, where they are found: node and Chromium."
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

NODE = shutil.which('node')
with_node = pytest.mark.skipif(not NODE, reason='there is no node on this machine')
CHROMIUM = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
with_chromium = pytest.mark.skipif(not CHROMIUM, reason='there is no Chromium on this machine')

def in_node(program, given, question):
    "What the lines of a question return, after those of a program, of what is `given`."
    program += f'''
const drain = g => {{ for (;;) {{ const {{value, done}} = g.next(); if (done) return value }} }}
const given = {json.dumps(given)}; console.log(JSON.stringify((() => {{ {question} }})()))'''
    said = subprocess.run([NODE], input=program, capture_output=True, text=True, timeout=900)
    assert said.returncode == 0, said.stderr[-2000:]
    return json.loads(said.stdout)

def in_chromium(folder, page):
    "What the script of a page left in the document when it was done, between SAID and END."
    (folder / 'page.html').write_text(page)
    quiet = '--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --disable-background-networking --disable-component-update --virtual-time-budget=3000000'
    said = subprocess.run([CHROMIUM, *quiet.split(), f'--user-data-dir={folder / "profile"}', '--dump-dom', (folder / 'page.html').as_uri()], capture_output=True, text=True, timeout=300)
    found = re.search('SAID(.*)END', said.stdout, re.DOTALL)
    assert found, said.stdout[-1000:] + said.stderr[-1000:]
    return json.loads(unescape(found[1]))
