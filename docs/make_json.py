"""Writes json.md, the page about ``--json``, from documents that commands print on sample_data.

The fields, their types and whether they are always there are taken from these documents; only
what a field means is written here. To write the page: ``python docs/make_json.py > docs/json.md``.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import tempfile
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trajcli.cli import main

ROOT = Path(__file__).resolve().parents[1]

INTRODUCTION = """\
# JSON

With `--json`, a command prints one JSON document on stdout and everything for people on stderr. NaN
and Inf are `null`. Where a command fails, the document is an `error`.

```sh
trajcli check sample_data/reach.h5 --limits sample_data/limits.toml --json
```

Below are the fields of each command; those of an object, or of each entry of a list, are indented.
`?` marks a field that is not always there, `<name>` a name that varies. A later version may print
more ([promises](promises.md)). `docs/make_json.py` writes this page.
"""

# The commands whose documents are read, in an order in which each finds its files.
RUNS = """
integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5
integrate sample_data/reach.h5 --mode jerk --scheme zoh -o dry.h5 --dry-run
integrate sample_data/accelerations.npy --start sample_data/start.npy --dt 0.02 --mode clique
    --actions delta --absolute 2 -o commands.h5
differentiate sample_data/recorded.h5 -o smooth.h5
differentiate sample_data/recorded.h5 --method savgol -o savgol.h5
differentiate sample_data/recorded_faulty.h5 --method central -o part.h5 --skip-bad
integrate sample_data/reach.h5 --mode jerk -o shards.h5 --shard 0/1
status shards.h5
merge shards.h5
inspect sample_data/reach.h5
inspect sample_data/demos.hdf5
inspect sample_data/camera.h5
inspect sample_data/recorded_faulty.h5
inspect out.h5
plot out.h5 --limits sample_data/limits.toml -o out.svg
check out.h5 --limits sample_data/limits.toml --recompute
check out.h5 --limits sample_data/gentle.toml
check sample_data/recorded_faulty.h5 --limits sample_data/gentle.toml
check sample_data/log.csv
check sample_data/camera.h5
score sample_data/recorded.h5 sample_data/reach.h5 --limits sample_data/limits.toml
score sample_data/recorded.h5 --fail duration>0.1 --limits sample_data/limits.toml
diff sample_data/recorded.h5 savgol.h5
diff smooth.h5 savgol.h5
diff out.h5 commands.h5
export smooth.h5 -o out.npz
resample sample_data/recorded.h5:position --to 250 -o fast.h5
resample out.h5 --to 250 -o faster.h5
retime out.h5 --limits sample_data/limits.toml -o uniform.h5
retime sample_data/waypoints.csv --limits sample_data/limits.toml -o fastest.h5
retime out.h5 --method fastest --limits sample_data/limits.toml -o timed.h5
fit sample_data/recorded.h5:position --knots 20 -o spline.h5
modes
info
integrate sample_data/accelerations.npy --start zero -o refused.h5
"""

# What every command has that computes OUT from trajectories.
COMPUTED = """\
out
source
dt_source : string|null
units : object|null
trajectories
output  `packed` or `groups`
notes : string[]  warnings
bytes_written
left_out : object[]\
"""
# By command: a field's name, a type where no run above prints it, and its meaning where the name
# does not say it.
MEANINGS = f"""
## integrate, differentiate
source  the first dataset
sources  how many datasets
layout : string|null  the kind of robot data
mode
mode_source  the file that states the mode
options  of the mode
  <name> : string|integer
commands  `--actions` and `--absolute`, where given
  actions
  absolute
shape  of the actions
  trajectories
  horizon  actions of the longest trajectory
  shortest  actions of the shortest
  dofs
output  `packed` or `groups`
rows  of the longest trajectory
shortest_rows
dt : number|string|null  in seconds, or `varies`
dt_source
start  where the start state is from
units : object|null
dtype
write  the quantities in OUT
device
backend
device_reason
bytes_read
bytes_written
block  what is computed at once
  trajectories
notes : string[]  warnings
left_out : object[]
keep_ranges : object[]
smoothing  by smooth
  bandlimit  lowest and highest cutoff of each dof, in Hz
  residual  likewise, the standard deviation of residuals
  reweighted  rows of each dof with less weight
out
dry_run
seconds
gb_per_s  bytes read and written per second
shard : string  where it was done before, with `already_done` and few other fields
already_done : boolean

## status
parts  the folder of the parts
complete
shards  how many there are in all
done
missing : integer[]
faults  by shard
array  the missing shards, for sbatch --array

## merge
out
parts  how many were joined
trajectories
notes : string[]  warnings
bytes_written
seconds
gb_per_s

## inspect
files
  file
  family  the file format
  layout  the kind of robot data
  bytes
  attributes
    <name>
  joint_names
  dt : object|null
    value : number|string|null  in seconds, or `varies`
    source
  trajectories
    count
    rows?  least and most
    dofs?
    shown?  the trajectory that is plotted
    start_stamps  first stamp of the first and of the last trajectory
    stamps_unit
    sampled?  only some trajectories were read
    duration?  least and most, in seconds
    rate?  in Hz; null where groups or trajectories differ
    rates? : object  for each group of trajectories
      <name> : any[]  least and greatest rate, in Hz
    jitter?  largest distance of a step from the median, in seconds
  datasets
    name
    shape?
    dtype?
    storage?
    units?
    nan : integer|null
    inf : integer|null
    min : number|null
    max : number|null
    trajectories?
    nonfinite_at : object[]  the first NaN or Inf
      trajectory : integer
      row : integer
      dof : integer
    dofs  names
    per_dof
      min : number|null
      max : number|null
      peak : number|null  largest magnitude
      at : object|null  when it occurs
        trajectory
        row
        time : number|null  in seconds
    rotations : object[]
      name : string
      form : string
      turn : number|null  largest angle from the first row, in rad
      norm : number|null  largest deviation of a norm from 1
      signs : integer|null  how often the quaternion's sign changes
    count  how many datasets have this name
    unreadable : string  why it cannot be read
  sampled  only a sample of the values was read
  one_sided  savgol: rows at each end that are ignored for peaks

## plot
out
quantities
notes : string[]  warnings
matched
bytes

## check
files
  file
  passed
  checks
    check
    dataset
    passed : boolean|null  null: not checked, and not asked for
    text  the result in words
    trajectories  how many were checked
    failing_trajectories
    failing_values
    where  the worst, in words
    at  the worst
      trajectory?
      row?
      dof?
      time? : number|null  in seconds
    rows  times: failing rows of the first trajectory that fails
      trajectory
      row
      time : number|null
    nan : integer
    inf : integer
    dt : number|null  even steps, in seconds
    step : number|null  stamps: the usual step, in seconds
    longest : number|null  the longest step
    jitter : number|null  RMS distance of steps from the usual one
    curve  limits between rows: the curve that `resample` uses
    exact  `--recompute`: equal to the bit
    times_rounding : number|null  error of the times as a share of the allowed rounding
    quantity  that is limited
    matched
    derived_from  dataset whose differences were checked
    dofs  those beyond their limits
      dof
      name
      value  the worst
      limit
      trajectory
      row
      time : number|null
      failing_values
      spans  of this trajectory, beyond the limit
        rows
        seconds
    used  share of the limit
    value : number|null  the worst
    limit : number|null
    per_dof  failing values; `--velocity-of`: RMS error as a share
    factors : any[]  `--velocity-of`: what fits each dof
    delays : any[]  in seconds
    residuals : any[]  share that no fit explains
    paired : string  `name` or `place`
    only : object  dofs that only one side has
      a? : string[]
      b? : string[]
    overlap : object  in time
      rows? : integer
      seconds? : number
    rate : object  rows per second
      stated : number|null
      fitted : number|null
    failures : string[]  `--verbose`: all failures, in words
  left_out : object[]

## score
files
  file
  dataset
  passed
  failed  trajectories, worst first
    <condition>
  notes
  matched
  summary
    <name>  of the score
      unit
      absent  trajectories without this score
      least?
      median?
      largest?
      least_at?  trajectory
      largest_at?  trajectory
  outliers
    <name>  of the score
  unscored  arrays and limits
  left_out : object[]
  trajectories  as `--sort` orders them
    trajectory
    <name> : number|null  of the score

## diff
a
b
passed
datasets
  dataset
  why  it cannot be compared, else empty
  note
  shape
  types
  values  how many were compared
  differing
  beyond  how many exceed the tolerance
  absolute : number|null  largest difference
  relative : number|null  as a share of the larger value
  ulp : number|null  units in the last place
  at  indices of the largest difference
  a : number|string|null  value there
  b : number|string|null
  rotations  rows
  angle  largest angle between them, in rad
  angle_rms
  paired  dofs: `name`, `place` or empty
  only  dofs that only one source has
    a : string[]
    b : string[]
  overlap : object|null  rows paired by time
    rows? : integer
    seconds? : number
    clock? : boolean  the sources share a clock
    interpolated? : string[]  `a` or `b`, where rows do not coincide
  rms : number|null
  passed
tracking  how b follows a
  dataset
  unit
  trajectories
  joints  over all trajectories
    joint
    delay : number|null  median seconds by which b is late
    offset : number|null  of b − a after the delay
    rms : number|null
    largest : number|null
    trajectory
    time : number|null
    missing  rows without a finite b − a
  delay  of trajectories: median, 5th and 95th percentile
    median : number|null
    low : number|null
    high : number|null
  largest
    median : number|null
    low : number|null
    high : number|null
  worst  five trajectories, with the fields of `joints`
    <name> : string|number|null
  episodes : any[]  `--verbose`: `joints` of each trajectory
attributes  that differ
  name
  a  null where absent
  b

## export
out
trajectories
quantities
bytes
keep_ranges : object[]

## resample
{COMPUTED}
keep_ranges : object[]
to : number|null
at : string|null
method  the curve through the rows
samples_of  or the mode whose exact curve is sampled
held_ends  trajectories whose last row was held
arrays  in OUT
rows_before  of a trajectory
  least
  most
rows
  least
  most

## retime
{COMPUTED}
limits  the file
method
matched
factor  uniform: by which time is scaled
  least? : number|null
  most? : number|null
factors  of each trajectory
limited_by  how many trajectories each quantity limits
  <quantity>
binding  what limits each trajectory
  trajectory?
  quantity?
  joint?
  time?  in OUT, in seconds
slack  share of the limit that each trajectory leaves
  <quantity>
trajectory  fastest: in the order of the lists below
durations  in seconds
  before?  null without times
  after?
  uniform?  by uniform scaling
states  `solved`, `not converged`, `uniform` or `does not move`
rows
joints
shares  of rows at 98 % of a limit or more, by trajectory and joint
  <quantity>
dwells  first and last times of standstills
corners  time or row, and angle in degrees, of corners where it stops
shard : string  as in `integrate`
already_done : boolean

## fit
{COMPUTED}
array
degree
intervals  between knots
steps  rows per interval
error  largest distance of rows from the curve
  median : number|null
  most : number|null
errors  of each trajectory
keep_ranges : object[]

## modes
modes
  name
  aliases
  formula
  needs
  rows  of H actions
  options

## info
versions  null where not installed
  <name> : string|null
devices
  name
  what
backends
  name
  present
  why  it is absent
  runs_on
cuda_absent  why, or empty

## error
error
  exit_code
  faults

## Shared fields
units  of the first input; null where unknown
  read
  from  what says so
  written  the SI unit that values are converted to
left_out  trajectories and files that `--skip-bad` left out
  name : string
  reason : string
  faults? : object[]
faults
  what
  where
  expected
  found
  hint
matched  which limit each dof has
  dof
  limit  joint in the file of limits
  by  `name`, `number` or `all`
keep_ranges  with `--trim`
  trajectory : string
  source : string  the array that it lies in
  rows : integer[]  [first, stop), the rows between its idle ends
"""
SHARED = ("units", "left_out", "faults", "matched", "keep_ranges")
_SIMPLE = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
           dict: "object"}  # fmt: skip


@dataclass
class Field:
    """A line of a table: an object's field, or all of those whose names vary (``<name>``)."""

    indent: str
    name: str
    stated: str
    meaning: str
    values: list[Any] = field(default_factory=list)
    objects: int = 0
    number: int = 0


def documents() -> dict[str, list[Any]]:
    """Runs all commands in a temporary folder, and returns by command what they print."""
    printed = defaultdict(list)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "sample_data", Path(folder, "sample_data"))
        os.chdir(folder)
        try:
            for line in re.sub(r"\n +", " ", RUNS).strip().splitlines():
                words, stdout = shlex.split(line), io.StringIO()
                with redirect_stdout(stdout), redirect_stderr(io.StringIO()):
                    main([*words, "--json"])
                document = json.loads(stdout.getvalue())
                printed["error" if [*document] == ["error"] else words[0]].append(document)
        finally:
            os.chdir(before)
    return printed


def read_meanings() -> dict[str, dict[str, dict[str, Field]]]:
    """Reads MEANINGS: by title of a table and path of an object, its fields by name."""
    tables: dict[str, dict[str, dict[str, Field]]] = {}
    number = 0
    for section in MEANINGS.strip().split("## ")[1:]:
        title, *lines = section.strip().splitlines()
        tables[title], parents = defaultdict(dict), [""]
        for line in lines:
            indent, name, kind, meaning = re.fullmatch(  # type: ignore[union-attr]
                r"((?:  )*)(\S+?\??)(?: : (\S.*?))?(?:  (\S.*))?", line
            ).groups()
            depth = len(indent) // 2
            number, key = number + 1, name.removesuffix("?")
            about = Field(indent, name, kind or "", meaning or "", number=number)
            tables[title][parents[depth]][key] = about
            parents[depth + 1 :] = [f"{parents[depth]}.{key}"]
    return tables


def collect(value: Any, path: str, title: str, tables: dict[str, Any]) -> None:
    """Adds the values within a document to the fields of a table; the entries of a list have the
    path of the list. Raises ValueError for a field that has no line."""
    if isinstance(value, list):
        for entry in value:
            collect(entry, path, title, tables)
    elif isinstance(value, dict):
        fields = tables[title][path]
        for line in fields.values():
            line.objects += 1
        for name, inner in value.items():
            key = name if name in fields else next((x for x in fields if x.startswith("<")), None)
            if key is None:
                raise ValueError(f"{title}{path} has no line for {name}")
            fields[key].values.append(inner)
            if name in SHARED and title != "status":  # whose faults are by shard
                collect(inner, f".{name}", "Shared fields", tables)
            else:
                collect(inner, f"{path}.{key}", title, tables)


def type_of(values: list[Any]) -> str:
    """Names the JSON types of values, as in ``number[]|null``."""
    names = {_SIMPLE[type(value)] for value in values if not isinstance(value, list)}
    if "number" in names:
        names.discard("integer")
    if lists := [value for value in values if isinstance(value, list)]:
        entries = type_of([entry for value in lists for entry in value])
        names.add("any[]" if "|" in entries or not entries else f"{entries}[]")
    return "|".join(sorted(names, key=lambda name: (name == "null", name)))


def page() -> str:
    """Makes the page. Raises ValueError where MEANINGS and what is printed disagree."""
    tables = read_meanings()
    for title, printed in documents().items():
        heading = next(x for x in tables if title in x.split(", "))
        for document in printed:
            collect(document, "", heading, tables)
    text = INTRODUCTION
    for title, objects in tables.items():
        rows = []
        for line in sorted(
            (x for fields in objects.values() for x in fields.values()), key=lambda x: x.number
        ):
            kind = type_of(line.values)
            # an array that is empty in the samples, or has one type there, may be stated in full
            shown, stated = (
                {*re.sub(r"\w+(\[\])+", "[]", x).split("|")} for x in (kind, line.stated)
            )
            if kind and line.stated and not shown <= stated:
                raise ValueError(f"{title}: {line.name} is {kind}, not {line.stated}")
            if not (kind or line.stated or title == "Shared fields"):
                raise ValueError(f"{title}: nothing prints {line.name}, so state its type")
            always = len(line.values) == line.objects or line.name[-1] in "?>"
            name = line.indent + line.name + "?" * (not always)
            kind = line.stated or kind
            rows.append((name, "" if kind == "object" else kind, line.meaning))
        first, second = (max(len(row[k]) for row in rows) + 2 for k in range(2))
        lines = [f"{name:{first}}{kind:{second}}{meaning}".rstrip() for name, kind, meaning in rows]
        text += f"\n## {title}\n\n```\n" + "\n".join(lines) + "\n```\n"
    return text


if __name__ == "__main__":
    print(page(), end="")
