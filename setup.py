"Everything that pip needs to know is in settings.ini; this file only passes it on."
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

ini = ConfigParser(delimiters=['='])
ini.read('settings.ini', encoding='utf-8')
cfg = ini['DEFAULT']
pythons = [f'3.{minor}' for minor in range(int(cfg['min_python'].split('.')[1]), 14)]

def readme():
    "README.md with absolute links: a package index shows it without the repository around it."
    path, blob = Path('README.md'), f'{cfg["git_url"]}/blob/{cfg["branch"]}/'
    text = path.read_text(encoding='utf-8') if path.exists() else ''
    text = re.sub(r'(!\[[^]]*\]\()(?!\w+:|#)', rf'\g<1>{blob.replace("/blob/", "/raw/")}', text)
    return re.sub(r'((?<!!)\[[^]]*\]\()(?!\w+:|#)', rf'\g<1>{blob}', text)

setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'],
    long_description=readme(),
    long_description_content_type='text/markdown',
    author=cfg['author'], author_email=cfg['author_email'], url=cfg['git_url'], license='Apache-2.0',
    packages=[*find_packages(include=[cfg['lib_path'], cfg['lib_path'] + '.*']), cfg['lib_path'] + '.configs'],
    package_dir={cfg['lib_path'] + '.configs': 'configs'},         # accelerate's configurations travel with the wheel
    package_data={cfg['lib_path']: ['py.typed', '**/*.pyi', '**/*.js', '**/*.css', '**/*.html', 'recipes/*.yaml',
                                   'course/symptoms.json', 'course/template/**/*.txt'],
                  cfg['lib_path'] + '.configs': ['*.yaml', '*.sh']},
    python_requires='>=' + cfg['min_python'],
    install_requires=shlex.split(cfg['requirements']),
    extras_require={extra: shlex.split(cfg[f'{extra}_requirements']) for extra in ('dev', 'export', 'bench')},
    entry_points={'console_scripts': cfg['console_scripts'].split(),
                  'nbdev': [f'{cfg["lib_name"]}={cfg["lib_path"]}._modidx:d']},
    classifiers=['Development Status :: 3 - Alpha', 'Intended Audience :: Developers', 'Natural Language :: English']
        + [f'Programming Language :: Python :: {v}' for v in pythons],
    zip_safe=False,
)
