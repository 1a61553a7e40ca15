"""Running a share: the units that are its own and not done, each into a part of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, OutputError, Stopped, TrajcliError, UsageError, raise_if_any
from trajcli.files.outputs import Output, discarding, open_output
from trajcli.files.placing import BUSY, os_fault, output_family
from trajcli.files.portion import Portion, portion_schema
from trajcli.jobs.account import Account
from trajcli.jobs.outline import outline
from trajcli.jobs.places import Files
from trajcli.jobs.plan import Plan, make_plan
from trajcli.jobs.records import (
    DONE,
    FAILED,
    FORMAT,
    OTHER,
    Folder,
    checksum,
    parts_folder,
)
from trajcli.jobs.request import Request
from trajcli.jobs.run import compute, halving_notes, signals
from trajcli.jobs.shrinking import Sizes, guarded
from trajcli.jobs.terms import Stamps, Terms, stamps
from trajcli.jobs.units import LEAST_BYTES, Division, Unit

Watch = Callable[[Account, float], None]
"""Called as units go on: the account, and how much of the unit at work is done, 0 to 1."""


def run_share(
    request: Request,
    on_plan: Callable[[Plan, Account], None] = lambda plan, account: None,
    on_progress: Watch = lambda account, part: None,
    dry: bool = False,
) -> dict[str, Any]:
    """Do the units of request.share that are not done, and return a report of plain values.

    Raises TrajcliError for what ends the share: a request that cannot be done, parts of another
    command, a full disk, a signal. A unit whose data are bad is recorded; the others go on.
    """
    assert request.share is not None
    files = Files(request.allow_external, request.untrusted)
    try:
        with signals() as stop:
            plan = make_plan(request, files)
            job = _Job(request, plan, files.paths(), on_progress, stop)
            account = job.account()
            on_plan(plan, account)
            if dry:
                return {**_described(plan, request, dry), **account.report()}
            job.folder.begin(job.document, request.overwrite, request.durable)
            with guarded(job.paths) as sizes:
                job.run(account, sizes)
    finally:
        files.close()
    described = _described(plan, request, dry)
    described["notes"] = [*described["notes"], *halving_notes(plan, account.halved)]
    return {**described, **account.report()}


def _described(plan: Plan, request: Request, dry: bool) -> dict[str, Any]:
    parts = str(parts_folder(request.out))
    return {**plan.describe(), "out": str(request.out), "parts": parts, "dry_run": dry}


class _Job:
    """A planned run and its folder: what does one unit after the other."""

    def __init__(
        self,
        request: Request,
        plan: Plan,
        paths: Sequence[str],
        on_progress: Watch,
        stop: Callable[[], str | None],
    ) -> None:
        _refuse(request, plan)
        self.paths = paths
        self._stamps = stamps(paths)
        self._known = set(paths)
        self.folder = Folder(parts_folder(request.out))
        self._request, self._plan = request, plan
        self._on_progress, self._stop = on_progress, stop
        self._sizes: dict[int, int] = {}
        self._division = Division([_weight(part) for part in plan.each()], LEAST_BYTES)
        terms = Terms.of(request, plan.choice.backend, paths, self._shared())
        assert request.share is not None
        self.document: dict[str, Any] = {
            "format": FORMAT,
            "shares": request.share.number,
            "tasks": request.share.tasks,
            "terms": terms.as_dict(),
            "division": {
                "lengths": [list(each) for each in self._division.lengths],
                "least": self._division.least,
            },
            "rows": [part.inputs.rows for part in plan.each()],
            "compress": request.compress,
            "schema": outline(plan.schema),
        }

    def _shared(self) -> Stamps:
        """The files that all units read: those without actions."""
        own = {self._path(where) for part in self._plan.each() for where in part.batch.sources()}
        return dict(called for path, called in self._stamps.items() if path not in own)

    def _path(self, where: str) -> str:
        """The file of an array, by what the array is called in messages."""
        path = where
        while path and path not in self._known:
            path = path.rpartition(":")[0]
        return path

    def _inputs(self, unit: Unit) -> dict[str, str]:
        """The files that the actions of a unit lie in, and what they are called."""
        plan = self._plan_of(unit)
        found: dict[str, str] = {}
        for block in plan.batch.blocks(plan.size, plan.begin, plan.end):
            origin, count = block.part.origin, block.end - block.begin
            for local in range(block.local, block.local + (count if origin else 1)):
                path = self._path(origin(local)[0] if origin else block.part.where)
                if path in self._stamps:
                    found[path] = self._stamps[path][0]
        return found

    def account(self) -> Account:
        """What this share has to do."""
        share = self._request.share
        assert share is not None
        numbers = self._division.of_share(share.index, share.number)
        return Account(share, [self._division.unit(n) for n in numbers], len(self._division))

    def run(self, account: Account, sizes: Sizes) -> None:
        """All units of the share; those that another run has are asked for once more at the end."""
        left = list(account.mine)
        for _ in range(2):
            account.elsewhere = []
            for unit in left:
                self._require_running(account)
                self._one(unit, account, sizes)
                self._on_progress(account, 0.0)
            left = account.elsewhere

    def _require_running(self, account: Account, came: str | None = None) -> None:
        came = came or self._stop()
        if came is not None:
            found = f"{account.before + account.done} of {len(account.mine)} units of share "
            found += f"{account.share.index} of {account.share.number} done; they are kept"
            hint = "run the same command again"
            raise Stopped(Fault(f"stopped by {came}", str(self.folder.path), "", found, hint))

    def _one(self, unit: Unit, account: Account, sizes: Sizes) -> None:
        """A unit: skipped where it is done, else computed and recorded."""
        paths = self._inputs(unit)
        inputs = dict(map(self._stamps.__getitem__, paths))
        state = self.folder.state(unit, inputs)
        if state.kind == DONE:
            account.before += 1
            return
        if state.kind == OTHER and not self._request.overwrite:
            where = str(self.folder.record(unit))
            expected, hint = "parts of this very command", "another OUT, or --overwrite"
            raise OutputError(Fault("a part made otherwise", where, expected, state.why, hint))
        if state.why and state.kind != OTHER:
            account.redone.append(state.why)
        try:
            self._compute(unit, paths, inputs, account, sizes)
        except Stopped as stopped:
            came = stopped.faults[0].what.removeprefix("stopped by ")
            self._require_running(account, came)
        except OutputError as error:
            if error.faults[0].what != BUSY:
                raise
            account.elsewhere.append(unit)
        except TrajcliError as error:
            faults = [fault.as_dict() for fault in error.faults]
            record = {"state": FAILED, "faults": faults}
            self.folder.write_record(unit, inputs, record, self._request.durable)
            account.failed.append((unit, error))

    def _compute(
        self,
        unit: Unit,
        paths: Mapping[str, str],
        inputs: Stamps,
        account: Account,
        sizes: Sizes,
    ) -> None:
        plan = self._plan_of(unit)
        path = self._place(unit)
        schema = portion_schema(
            self._plan.schema, plan.prefix, unit.begin, unit.end, plan.inputs.rows
        )
        identity = json.dumps([self.folder.digest, unit.name, inputs])
        output = open_output(path, schema, True, self._request.durable, identity, resume=True)
        with discarding(output):
            if self.folder.state(unit, inputs).kind == DONE:  # by now, by another run
                output.discard()
                account.before += 1
                return
            bad = self._fill(plan, unit, output, account, sizes)
            sizes.require_all(paths)
            self._require_unchanged(paths)
            output.finish()
        record = {"state": DONE, "part": path.name, "bytes": path.stat().st_size,
                  "checksum": checksum(path), "bad": bad, **self._members(unit)}  # fmt: skip
        self.folder.write_record(unit, inputs, record, self._request.durable)
        account.done += 1
        account.bad += bad
        account.bytes_done += schema.nbytes
        account.bytes_moved += schema.nbytes + _read_by(plan, unit)

    def _fill(self, plan: Plan, unit: Unit, output: Output, account: Account, sizes: Sizes) -> int:
        begin, end = unit.trajectories

        def progress(done: int, total: int) -> None:
            self._on_progress(account, (done - begin) / max(end - begin, 1))

        sink = Portion(output, plan.prefix, unit.first, unit.begin)
        allow = self._request.allow_nonfinite
        reached = compute(plan, sink, sizes, allow, self._stop, progress)
        account.halved += reached.halved
        self._sizes[unit.length] = reached.plan.size  # the next unit begins with these
        return reached.bad

    def _place(self, unit: Unit) -> Path:
        """The part of a unit, in a folder that is there."""
        path = self.folder.part(unit)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(os_fault(path.parent, error)) from None
        return path

    def _require_unchanged(self, paths: Mapping[str, str]) -> None:
        """Raise InputError for inputs that are others than when the run was planned."""
        now = {path: [(s := os.stat(path)).st_size, s.st_mtime_ns] for path in paths}
        changed = [path for path in paths if now[path] != self._stamps[path][1]]
        what, hint = "changed while it was read", "run it again once it is complete"
        raise_if_any(Fault(what, path, hint=hint) for path in changed)

    def _plan_of(self, unit: Unit) -> Plan:
        """The plan of the unit's trajectories alone."""
        part = self._plan.each()[unit.length]
        gradient = part.gradient and replace(part.gradient, totals={}, apart=True)
        size = self._sizes.get(unit.length, part.size)
        return replace(part, size=size, begin=unit.begin, end=unit.end, gradient=gradient)

    def _members(self, unit: Unit) -> dict[str, Any]:
        """Of a run of several lengths, which trajectories these are."""
        schema, some = self._plan.schema, slice(unit.begin, unit.end)
        if schema.groups:
            return {"names": list(schema.groups[unit.length][some])}
        if schema.scatter:
            return {"numbers": [int(n) for n in schema.scatter[unit.length][some]]}
        return {}


def _weight(part: Plan) -> tuple[int, int]:
    """How many trajectories a length has, and the bytes that are written for each."""
    count, _, _ = part.batch.shape
    whole = portion_schema(part.schema, part.prefix, 0, 1, part.inputs.rows)
    each = [v.nbytes for v in whole.variables if v.dims[:1] == ("trajectory",)]
    return count, sum(each)


def _read_by(plan: Plan, unit: Unit) -> int:
    count, _, _ = plan.batch.shape
    return plan.batch.nbytes * (unit.end - unit.begin) // max(count, 1)


def _refuse(request: Request, plan: Plan) -> None:
    """What cannot be divided."""
    output_family(request.out)
    indexed = plan.inputs.goal_index is not None
    summed = [
        variable.name
        for variable in plan.schema.streamed
        if variable.summed and variable.name.startswith("grad/goal") and indexed
    ]
    if summed:
        expected = "a goal for every trajectory, or one for all"
        hint = "--wrt without goal"
        what = "gradients of goals with an index are not divided"
        raise UsageError(Fault(what, "--shard-index", expected, ", ".join(summed), hint))
