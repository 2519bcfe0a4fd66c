"Draw nbs/card.png, the picture that a link to the site shows elsewhere."
from pathlib import Path
import matplotlib
matplotlib.use('Agg')
from annotated_transformer.utils.plotting import book_map

ax = book_map()
fig = ax.figure
fig.set_size_inches(12, 6.3)
ax.set_position([.03, .02, .94, .74])
for text in ax.texts: text.set_fontsize(12)
fig.text(.5, .88, 'Attention Is All You Need', ha='center', fontsize=34, weight='bold')
fig.text(.5, .80, 'section by section, as running code', ha='center', fontsize=20, color='.3')
fig.savefig(Path(__file__).resolve().parents[1]/'nbs'/'card.png', dpi=100)
