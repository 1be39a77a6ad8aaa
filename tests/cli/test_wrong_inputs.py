"""Wrong input to any command is refused in one line that names it, and nothing is written."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.records.record import records
from tests.cli.test_vector_commands import SPEC as VECTORS

FILES = {
    "file.txt": "x",
    "verdicts.json": "{",
    "other/verdicts.json": '[{"id": 3}]',
    "site/index.html": "mine",
    "guest.py": "raise RuntimeError('no')",
    "syntax.py": "def (:",
    "models.py": "number = 3\ndef three(): return 3\ndef fails(): raise RuntimeError('no')",
    "model.gguf": "no",
    "model/tokenizer.json": "{}",
    "open.yaml": "train: [}",
    "list.yaml": "- 3",
    "date.yaml": "train: {out: 2001-02-30}",
    "deep.yaml": "[" * 100_000,
    "key.yaml": "train: {sedes: 0}",
    "section.yaml": "trian: {}",
    "value.yaml": "train: {jobs: many}",
    "scalar.yaml": "train: 3",
    "null.yaml": "train: {seeds: null}",
    "import.yaml": "import: {a: b}",
    "sweeps/keys.yaml": "preset: v3",
    "sweeps/preset.yaml": "{preset: v33, seeds: 0, axes: {task.n_values: [3, 4]}}",
    "sweeps/seeds.yaml": "{preset: v3, seeds: a-b, axes: {task.n_values: [3]}}",
    "sweeps/negative.yaml": "{preset: v3, seeds: [-1], axes: {task.n_values: [3]}}",
    "sweeps/field.yaml": "{preset: v3, seeds: 0, axes: {task.n_valuess: [3]}}",
    "sweeps/axes.yaml": "{preset: v3, seeds: 0, axes: 3}",
    "sweeps/value.yaml": "{preset: v3, seeds: 0, axes: {task.n_values: [1]}}",
    "sweeps/empty.yaml": "{preset: v3, seeds: 0, axes: {task.n_values: []}}",
    "sweeps/twice.yaml": "{preset: v3, seeds: 0, axes: {task.n_values: [3, 3]}}",
    "sweeps/recipe.yaml": "{preset: v3, seeds: 0, recipe: quik, axes: {task.n_values: [3]}}",
    "sweeps/unknown.yaml": "{preset: v3, seeds: 0, axes: {task.n_values: [3]}, axis: 1}",
}
"""Beside a run in `runs/run`, one of vectors in `vectors/run`, damaged ones in `broken` and an empty directory."""
LAST = "checkpoints/00000060.safetensors"
DAMAGES = {
    "json": ("run.json", lambda content: b"{"),
    "list": ("run.json", lambda content: b"[]"),
    "bytes": ("run.json", lambda content: b"\xff\xfe"),
    "task": ("run.json", lambda content: content.replace(b"permutation-lookup", b"permutation-lokup")),
    "field": ("run.json", lambda content: content.replace(b'"d_model"', b'"d_modell"')),
    "value": ("run.json", lambda content: content.replace(b'"seed": 0', b'"seed": "no"')),
    "end": ("run.json", lambda content: json.dumps({**json.loads(content), "last_step": "soon"}).encode()),
    "cut": (LAST, lambda content: content[:-100]),
    "changed": (LAST, lambda content: content[:-5] + bytes([content[-5] ^ 255]) + content[-4:]),
    "empty": (LAST, lambda content: b""),
    "metrics": ("metrics.jsonl", lambda content: b"{}\n"),
    "words": ("metrics.jsonl", lambda content: b'{"step": 0, "train_loss": "low", "test_loss": 1}\n'),
}


@pytest.fixture(scope="module")
def place(tiny, trained_once, tmp_path_factory):
    """What the lines below are about; nobody may write into it."""
    place = tmp_path_factory.mktemp("wrong")
    shutil.copytree(tiny.path, place / "runs" / "run")
    shutil.copytree(trained_once("wrong/vectors", VECTORS).path, place / "vectors" / "run")
    for name, (file, change) in DAMAGES.items():
        shutil.copytree(tiny.path, place / "broken" / name)
        damaged = place / "broken" / name / file
        damaged.write_bytes(change(damaged.read_bytes()))
    shutil.copytree(tiny.path, place / "broken" / "untrained")
    shutil.rmtree(place / "broken" / "untrained" / "checkpoints")
    (place / "empty").mkdir()
    for name, text in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    (place / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    (place / "zero.yaml").write_bytes(b"train: {preset: v3\x00}")
    (place / "latin.yaml").write_bytes("train: {out: café}".encode("latin-1"))
    return place


WRONG = [
    # commands and what the parser knows
    ("trian", "'trian'; the nearest: train"),
    ("claims rnu", "'claims rnu'; the nearest: claims run"),
    ("claims", "got 'claims'"),
    ("completion tcsh", "'bash', 'zsh', 'fish'"),
    ("completion", "mnemoscope completion --help"),
    ("train --sedes 3", "the nearest: --seeds"),
    ("ablate runs --what component", "the nearest: components"),
    ("ablate runs --split all", "'train', 'test'"),
    ("patch runs --kind resid_per", "the nearest: resid_pre"),
    ("probe runs --sites resid_posst", "the nearest: resid_post"),
    ("shapley runs --kinds nothing", "'zero', 'mean', 'resample'"),
    ("truncate runs --parts bottom", "'top', 'rest'"),
    ("edges runs --freeze mlp", "'attention', 'layer_norm'"),
    ("discover runs --replacement noise", "'patch', 'mean', 'zero'"),
    ("interchange runs --jbos 2", "the nearest: --jobs"),
    ("evaluate runs --n-samples few", "['few']; see mnemoscope evaluate --help"),
    ("compare runs/run", "Missing"),
    ("predict runs/run --out page.html", "Missing"),
    ("predict runs/run 3 1", "Unrecognized words: 1; put the sequence in quotes"),
    ("claims prove", "claims validate, claims verify; got 'claims prove'"),
    ("ablate v3-quick", "zoo:v3-quick is a shipped one"),
    # values of training
    ("train --seeds a-b", "got 'a-b'"),
    ("train --seeds 3-1", "got '3-1'"),
    ("train --seeds 1,1", "once; got '1,1'"),
    ("train --seeds -1", "got '-1'"),
    ("train --seeds ''", "got ''"),
    ("train --seeds 1.5", "got '1.5'"),
    ("train --seeds 0-99999999999", "100000 seeds at most"),
    ("train --jobs 99999", "from 1 to 1024"),
    ("train --jobs -1", "0 for one process per core"),
    ("train --device cdua", "got 'cdua'"),
    ("train --device cuda:99 --seeds 0,1", "got 'cuda:99'"),
    ("train --device meta --together", "got 'meta'"),
    ("train --together --one-by-one", "exclude each other"),
    ("train --preset v33", "got 'v33'; the nearest: v3"),
    ("train --preset v3 --recipe quik", "got 'quik'; the nearest: quick"),
    ("train --set recipe.n_steps", "got 'recipe.n_steps'"),
    ("train --set recipe.n_stepz=3", "got 'n_stepz'; the nearest: n_steps"),
    ("train --set recipe.n_steps=-3", "at least 1; got -3"),
    ("train --set recipe.n_steps=[", "--set recipe.n_steps takes a value as YAML writes it; got '['"),
    ("train --set model.d_model=0", "model.d_model must be at least 1; got 0"),
    ("train --set model.n_heads=3", "must divide"),
    ("train --set model.act_fn=swush", "got 'swush'"),
    ("train --set recipe.learning_rate=fast", "got 'fast'"),
    ("train --set recipe.batch_size=0", "at least 1; got 0"),
    ("train --set task.repeat_ratio=2", "from 0 to 1"),
    ("train --set task.repeat_ratio=often", "valid number"),
    ("train --set task.n_values=99", "from 3 to 8; got 99"),
    ("train --set seed=3", "got 'seed=3'"),
    ("train --corpus nowhere.txt", "--corpus nowhere.txt cannot be read: No such file"),
    ("train --corpus empty", "--corpus empty cannot be read: Is a directory"),
    ("train --clamp L0H1", "a clamp looks like L1H3=zero"),
    ("train --clamp L0H1=gone", "got 'L0H1=gone'"),
    ("train --clamp 'L0H1=zero from 9 to 3'", "must come after its start, 9; got 3"),
    ("train --clamp 'L0H1=zero from 99999'", "start of the clamp L0H1=zero from 99999 must be from 0 to"),
    ("train --clamp L7H0=zero", "the layer of site L7H0 must be 0; got 7"),
    ("train --clamp 'L0H0 pattern=pattern previous'", "the nearest: previous token"),
    ("train --clamp 'ideal copy'", "has no ideal parts; got ideal 'copy'"),
    ("train --clamp 'L0 MLP pos 1=zero'", "the clamp L0 MLP pos 1=zero reaches nothing"),
    ("ablate runs --clamped", "has no clamps; look at the run as it is"),
    # configuration files and guests
    ("train --config", "--config must name a YAML file"),
    ("train --config --seeds 3", "--config must name a YAML file"),
    ("train --config nowhere.yaml", "nowhere.yaml cannot be read: No such file"),
    ("train --config empty", "empty cannot be read: Is a directory"),
    ("train --config bytes.yaml", "bytes.yaml is no YAML"),
    ("train --config open.yaml", "open.yaml is no YAML"),
    ("train --config zero.yaml", "zero.yaml is no YAML"),
    ("train --config latin.yaml", "latin.yaml is no YAML"),
    ("train --config date.yaml", "date.yaml is no YAML"),
    ("train --config deep.yaml", "deep.yaml is no YAML"),
    ("train --config 'nul\0l.yaml'", "no null byte"),
    ("train --scheduler bytes.yaml", "bytes.yaml is no YAML"),
    ("train --set recipe.n_steps=2001-02-30", "takes a value as YAML writes it; got '2001-02-30'"),
    ("train --config list.yaml", "list.yaml must hold sections named after commands"),
    ("train --config key.yaml", "got 'sedes'; the nearest: seeds"),
    ("train --config section.yaml", "got 'trian'; the nearest: train"),
    ("train --config value.yaml", "train.jobs in value.yaml"),
    ("train --config scalar.yaml", "section train of scalar.yaml"),
    ("train --config null.yaml", "train.seeds in null.yaml"),
    ("train --config import.yaml", "import in import.yaml must be a list"),
    ("train --import nowhere.py", "nowhere.py: there is no such file"),
    ("train --import guest.py", "guest.py cannot be imported: RuntimeError: no"),
    ("train --import syntax.py", "syntax.py cannot be imported: SyntaxError"),
    ("train --import empty.module", "empty.module cannot be imported"),
    # places to write to
    ("train --out file.txt/below", "file.txt is a file"),
    ("evaluate runs --out file.txt", "--out must be a directory; file.txt is a file"),
    ("ablate runs/run --out page.html", "page.html is called like a file"),
    ("report runs --out r.pdf", "--out must name a page, such as r.html; got r.pdf"),
    ("predict runs/run '3 1' --out view", "--out must name a page, such as view.html; got view"),
    ("explore runs --out e.png", "--out must name a page, such as e.html; got e.png"),
    ("index runs --out new/i.csv", "--out must name a page, such as new/i.html; got new/i.csv"),
    ("report runs --out empty", "--out must be a file; empty is a directory"),
    ("index runs --out empty", "--out must be a file; empty is a directory"),
    ("index runs --out file.txt", "--out must name a page, such as file.html; got file.txt"),
    ("index site", "site/index.html is there and no such overview"),
    ("explore nowhere", "nowhere"),
    ("explore vectors/run", "reads vectors"),
    ("explore runs/run --out empty", "--out must be a file; empty is a directory"),
    ("export runs/run --out file.txt", "--out must be a directory; file.txt is a file"),
    ("claims run T1 --zoo --jobs 1 --out file.txt", "--out must be a directory; file.txt is a file"),
    ("report runs --figures gif", "'svg', 'pdf', 'png'"),
    ("report runs --figure-width 3", "name formats, such as --figures pdf"),
    ("report runs --figures svg --figure-width 0", "between 0.5 and 50"),
    ("hookcheck runs/run --json empty", "--json must be a file; empty is a directory"),
    ("hookcheck runs/run --junit file.txt/below", "file.txt is a file"),
    ("hookcheck runs/run --n-pos 0", "--n-pos must be at least 1; got 0"),
    ("hookcheck runs/run --max-seconds 0", "--max-seconds must be above 0"),
    ("hookcheck runs/run --laws reech", "got 'reech'; the nearest: reach"),
    ("hookcheck runs", "choose one, such as runs/run"),
    ("hookcheck model", "model is no run directory"),
    ("hookcheck nowhere.gguf", "nowhere.gguf does not exist"),
    ("hookcheck models.py:nothing", "models.py has no function nothing"),
    ("hookcheck models.py:number", "models.py:number must be a function that gives a model; got 3"),
    ("hookcheck models.py:fails", "models.py:fails gives no model: RuntimeError: no"),
    ("hookcheck three --import models.py", "got 3: ms.open_run gives a run"),
    ("methods --circuits inductoin", "known circuit must be one of"),
    ("methods --methods eapp", "got 'eapp'; the nearest: eap"),
    ("methods --n 1", "--n must be at least 2; got 1"),
    ("methods --draws 0", "--draws must be at least 1; got 0"),
    ("methods --out file.txt", "--out must be a directory; file.txt is a file"),
    ("atlas empty", "empty holds no entries"),
    ("atlas nowhere", "nowhere does not exist"),
    ("atlas list.yaml", "list.yaml: "),
    ("atlas --out file.txt", "--out must be a directory; file.txt is a file"),
    ("atlas --out site", "--out site holds files and is no atlas"),
    ("methods --import guest.py", "guest.py cannot be imported: RuntimeError: no"),
    ("dictionary train runs --kind crosscoder", "'sae', 'transcoder', 'skip-transcoder'"),
    ("dictionary train runs --read resid_post", "read of a dictionary of kind transcoder must be one of: mlp"),
    ("dictionary train runs --layer 3", "layer of a dictionary must be 0; got 3"),
    ("dictionary train runs --seeds x", "got 'x'"),
    ("dictionary train runs --out file.txt", "--out must be a directory; file.txt is a file"),
    ("dictionary measure runs", "holds no dictionary"),
    ("dictionary measure runs --n 1", "--n must be at least 2; got 1"),
    ("dictionary agree runs --dictionaries empty", "dictionary train` trains some"),
    # runs that are not there
    ("evaluate", "name at least one run directory"),
    ("evaluate nowhere", "nowhere is no run directory"),
    ("evaluate empty", "empty is no run directory"),
    ("evaluate file.txt", "file.txt is no run directory"),
    ("evaluate runs runs/run", "runs/run is named twice"),
    ("evaluate runs broken/metrics", "seed 0 of v3"),
    ("evaluate --checkpoints nowhere", "nowhere is no run directory"),
    ("index nowhere", "nowhere is no directory"),
    ("predict runs '3 1' --out page.html", "it holds some; choose one, such as runs/run"),
    ("export runs", "it holds some; choose one, such as runs/run"),
    ("predict zoo:v3-quick '3 1'", "choose one, such as zoo:v3-quick/seed-16"),
    ("evaluate zoo:v3-quik", "got 'v3-quik'; the nearest: v3-quick"),
    ("evaluate zoo:v3-quick/seed-999", "got 'seed-999'"),
    ("compare runs/run nowhere", "nowhere is no run directory"),
    ("compare runs/run@7 runs/run", "no checkpoint of step 7; it has 0, 10, 30, 60"),
    ("compare runs/run vectors/run", "permutation-lookup and retrieval"),
    ("list presetz", "got 'presetz'; the nearest: presets"),
    ("list empty", "empty is no run directory"),
    ("dev zoo tiny-recall --runs nowhere", "nowhere is no run directory"),
    ("dev zoo tiny-recal", "got 'tiny-recal'; the nearest: tiny-recall"),
    ("dev zoo tiny-recall --only v3-quik", "the nearest: v3-quick"),
    ("reproduce tiny-recal --jobs 1", "got 'tiny-recal'; the nearest: tiny-recall"),
    ("reproduce tiny-recall --jobs 1 --seeds x", "got 'x'"),
    ("reproduce memory-theory --jobs 1 --seeds 0", "memory-theory trains no runs"),
    ("reproduce birth --jobs 1 --corpus nowhere.txt", "nowhere.txt cannot be read"),
    # runs that are damaged
    ("evaluate broken/json", "broken/json/run.json cannot be read"),
    ("evaluate broken/list", "broken/list/run.json cannot be read"),
    ("evaluate broken/bytes", "broken/bytes/run.json cannot be read"),
    ("evaluate broken/task", "broken/task/run.json: task must be one of"),
    ("evaluate broken/field", "got 'd_modell'; the nearest: d_model"),
    ("evaluate broken/value", "broken/value/run.json: seed must be a whole number"),
    ("list broken/end", "broken/end/run.json cannot be read: last_step"),
    ("list broken/list", "broken/list/run.json cannot be read"),
    ("list broken/metrics", "metrics.jsonl is damaged: line 1 lacks step"),
    ("evaluate broken/untrained", "broken/untrained is no run directory and holds none with a checkpoint"),
    ("ablate broken/cut", f"broken/cut/{LAST} is truncated"),
    ("evaluate --checkpoints broken/empty", f"broken/empty/{LAST} is truncated"),
    ("predict broken/changed '3 1'", f"broken/changed/{LAST} was changed after it was written"),
    ("export broken/cut", f"broken/cut/{LAST} is truncated"),
    ("claims new My_Claim", "small letters, digits and hyphens, such as my-claim; got 'My_Claim'"),
    ("claims new json", "that of a module that is installed; got 'json'"),
    ("claims new empty", "empty exists; choose another name"),
    ("new task My_Task", "small letters, digits and hyphens, such as my-task; got 'My_Task'"),
    ("list broken/words", 'train_loss on line 1 must be a number, and is "low"'),
    # values of analyses
    ("ablate runs --step 7", "must be one of: 0, 10, 30, 60; got 7"),
    ("ablate runs --n -5", "--n must be at least 2; got -5"),
    ("ablate runs --within is_repeated", "got 'is_repeated'; the nearest: is_repeat"),
    ("circuits runs --n 0", "--n must be at least 2; got 0"),
    ("heads runs --tolerance nan", "--tolerance must be at least 0; got nan"),
    ("neurons runs --layer 9", "layer must be 0; got 9"),
    ("neurons runs --top 0", "--top must be at least 1; got 0"),
    ("patch runs --over layers", "got layers"),
    ("patch runs --metrics logit_dif", "the nearest: logit_diff"),
    ("patch runs --corruption move_repeats", "the nearest: move_repeat"),
    ("patch runs --skills recal", "the nearest: recall"),
    ("probe runs --latents is_repeated", "the nearest: is_repeat"),
    ("probe runs --pos 99", "--pos must be from -9 to 8; got 99"),
    ("shapley runs --samples 3", "--samples must be at least 8; got 3"),
    ("truncate runs --weights 'L9 W_out'", "blocks.9.mlp.W_out"),
    ("truncate runs --weights 'L0H9 W_O'", "from 0 to 1; got 9"),
    ("truncate runs --ranks 999", "from 0 to 32; got 999"),
    ("edges runs --metrics nothing", "got 'nothing'"),
    ("edges runs --corruption nothing", "got 'nothing'"),
    ("discover runs --target 2", "--target must be from 0.01 to 1"),
    ("discover runs --n-random -1", "--n-random must be at least 1"),
    ("interchange runs --n 0", "--n must be at least 2; got 0"),
    ("compare runs/run runs/run@60 --n 0", "--n must be at least 2; got 0"),
    ("evaluate runs --n-samples -4", "--n-samples must be at least 1; got -4"),
    # sequences
    ("predict . '3 1'", "run.json"),
    ("predict runs/run '3 1' --step 7", "must be one of: 0, 10, 30, 60; got 7"),
    ("predict runs/run '3 9'", "must be one of: 1, 2, 3, 4, 5; got '9'"),
    ("predict runs/run 'a b c'", "got 'a'"),
    ("predict runs/run '1 2 3 4 5 1 2 3 4 5 1 2'", "from 1 to 10; got 12"),
    ("predict runs/run '3 1 3 2' --out page.html", "contradict each other"),
    ("predict runs/run '' --out page.html", "tokens"),
    ("predict vectors/run '3 1' --out page.html", "consists of vectors"),
    # vectors where tokens are needed
    ("circuits vectors", "circuits is about tokens"),
    ("neurons vectors", "neurons is about tokens"),
    ("probe vectors", "probe is about tokens"),
    ("discover vectors", "discover is about tokens"),
    ("interchange vectors", "interchange is about tokens"),
    # sweeps
    ("sweep nowhere.yaml", "nowhere.yaml cannot be read"),
    ("sweep bytes.yaml", "bytes.yaml is no YAML"),
    ("sweep list.yaml", "list.yaml must hold the keys preset, seeds and axes"),
    ("sweep sweeps/keys.yaml", "seeds is missing"),
    ("sweep sweeps/preset.yaml", "got 'v33'; the nearest: v3"),
    ("sweep sweeps/seeds.yaml", "got 'a-b'"),
    ("sweep sweeps/negative.yaml", "a seed must be at least 0; got -1"),
    ("sweep sweeps/field.yaml", "got 'n_valuess'; the nearest: n_values"),
    ("sweep sweeps/axes.yaml", "sweep.axes"),
    ("sweep sweeps/value.yaml", "task.n_values must be from 3 to 8; got 1"),
    ("sweep sweeps/empty.yaml", "at least one value"),
    ("sweep sweeps/twice.yaml", "must differ"),
    ("sweep sweeps/recipe.yaml", "got 'quik'; the nearest: quick"),
    ("sweep sweeps/unknown.yaml", "got 'axis'; the nearest: axes"),
    # claims
    ("claims list T99", "got 'T99'"),
    ("claims show tiny-recal", "the nearest: tiny-recall"),
    ("dev register T99", "got 'T99'"),
    ("dev check T99", "got 'T99'"),
    ("dev entries T99", "got 'T99'"),
    ("claims verify T99 --zoo", "got 'T99'"),
    ("claims verify T14 --zoo --share 2", "share"),
    ("dev register T1 --verdicts verdicts.json", "verdicts.json holds no verdicts"),
    ("claims diff nowhere nowhere", "nowhere does not exist"),
    ("dev store list nowhere", "nowhere is no directory"),
    ("dev store verify verdicts.json", "verdicts.json is no directory"),
    ("dev store clean other", "other/verdicts.json holds something else; nothing was removed"),
    ("claims run T14 --zoo --store verdicts.json", "--store must be a directory; verdicts.json is a file"),
    ("train --scheduler nowhere.yaml", "nowhere.yaml cannot be read"),
    ("train --scheduler locl", "the nearest: local"),
    ("claims diff verdicts.json verdicts.json", "verdicts.json holds no verdicts"),
    ("claims diff other other", "other/verdicts.json holds no verdicts"),
    ("claims diff model model", "tokenizer.json: id: Field required"),
    ("claims export T99", "got 'T99'"),
    ("claims export T14 --out file.txt", "--out must be a directory; file.txt is a file"),
    ("claims import nowhere", "nowhere does not exist"),
    ("claims import other", "other/verdicts.json holds no verdicts"),
    ("claims import file.txt", "file.txt: no JSON"),
    ("claims validate nowhere", "nowhere does not exist"),
    ("claims validate sweeps", "holds no entries"),
    ("claims validate verdicts.json", "1 fault in 1 of 1 entry file"),
    ("claims run T1 --jobs 1", "claims run needs models"),
    ("claims run T1 --jobs 1 --runs nowhere", "nowhere is no run directory"),
    ("claims run T1 --jobs 1 --runs runs --recipe slow", "got 'slow'"),
    ("claims run T1 --jobs 1 --runs runs --model smollm2", "leave out --model"),
    ("claims run L1 --jobs 1", "name one with --model"),
    ("claims run L1 --jobs 1 --model nowhere.gguf", "nowhere.gguf does not exist"),
    ("claims run L1 --jobs 1 --model model", "model is a directory without config.json"),
    ("claims run L1 --jobs 1 --model smollm2 --dtype float99", "got 'float99'"),
    ("claims run L1 --jobs 1 --model smollm2 --device cuda:99", "got 'cuda:99'"),
    ("prompts retrieval --model nowhere.gguf", "nowhere.gguf does not exist"),
    ("prompts retrieval --difficulties 5-1", "got '5-1'"),
    ("prompts retrieval --questions 0", "--questions must be at least 1"),
    ("prompts retrieval --formulations kingdom", "the nearest: kingdoms"),
    ("prompts retrieval --temperature -1", "temperature must be at least 0"),
    ("prompts stability --model nowhere.gguf", "nowhere.gguf does not exist"),
    ("prompts stability --family fables", "--family must be one of: names, facts, conflicts"),
    ("prompts stability --family facts --wordings", "--wordings: the family facts has no other wording of its prompts"),
    ("prompts stability --n 1", "--n must be at least 2"),
    ("prompts stability --n-draws 1", "--n-draws must be at least 2"),
    ("prompts stability --n-random 0", "--n-random must be at least 1"),
    ("prompts stability --metrics mse", "--metrics must be one of: logit_diff"),
    ("prompts stability --targets 2", "--targets must be from 0.01 to 1"),
    ("prompts stability --searches quick", "'quick'"),
    ("discover smollm2 --stability", "`mnemoscope prompts stability`"),
]
SHOWN = {line.partition(" ")[0] for line, _ in WRONG}
WRONG += [(f"{name} runs --n 0", "--n must be at least") for name in records() if name not in SHOWN]


@pytest.mark.parametrize(("line", "named"), WRONG, ids=[line for line, _ in WRONG])
def test_it_is_refused_in_one_line_that_names_it(line, named, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = listed(place)
    with pytest.raises(SystemExit) as end:
        main(shlex.split(line))
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("mnemoscope: ")
    assert said.count("\n") == 1
    assert named in said
    assert listed(place) == before


def listed(place: Path) -> dict[str, int]:
    """Everything in a directory but what Python keeps of imported modules, and when it was written."""
    paths = (path for path in place.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in paths}


def test_there_are_enough_of_them_and_every_command_is_among_them():
    lines = [line for line, _ in WRONG]
    assert len(set(lines)) == len(lines) >= 55
    assert [name for name in commands() if not any(line.startswith(name) for line in lines)] == []


def test_a_damaged_model_file_is_refused(place, monkeypatch, capsys):
    """Where what reads such files is installed; what it says of them is its own."""
    pytest.importorskip("gguf")
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit) as end:
        main(["claims", "run", "L1", "--jobs", "1", "--model", "model.gguf"])
    assert end.value.code == 2
    assert "source model.gguf cannot be read" in capsys.readouterr().err
