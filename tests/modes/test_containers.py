"""Trajectories and states are containers: indexed, joined, compared, converted, known to torch."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import jacrev, vmap
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

import trajcli
from trajcli import State, Trajectory

ACTIONS = np.random.default_rng(0).normal(size=(5, 12, 2))
STEPS = np.linspace(0.01, 0.02, 60).reshape(5, 12)
BOTH = pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])


def made(convert: Any = np.asarray, dt: Any = 0.02, mode: str = "jerk", **options: Any) -> Any:
    options = options or {"scheme": "zoh"}
    return trajcli.integrate(convert(ACTIONS), "zero", dt, mode, **options)


def smoothed(rows: int = 40) -> Any:
    rng = np.random.default_rng(rows)
    return trajcli.differentiate(np.cumsum(rng.normal(size=(3, rows, 2)), 1), dt=0.02)


MASK = np.array([True, False, False, True, False])
INDICES: list[tuple[Any, Any]] = [  # an index, and how NumPy picks the same
    (3, np.s_[3:4]),
    (-1, np.s_[-1:]),
    (np.int64(2), np.s_[2:3]),
    (np.s_[1:4], np.s_[1:4]),
    (np.s_[::-1], np.s_[::-1]),
    ([4, 1], np.s_[[4, 1]]),
    ([], np.s_[:0]),
    (MASK, np.s_[[0, 3]]),
    (torch.tensor(MASK), np.s_[[0, 3]]),
    (torch.tensor([2, 0], dtype=torch.uint8), np.s_[[2, 0]]),
    (np.s_[:, 10:20], np.s_[:, 10:20]),
    (np.s_[2, -1], np.s_[2:3, -1:]),
    (np.s_[..., 1], np.s_[:, :, 1:]),
    (..., np.s_[:]),
    (np.s_[1:3, ..., [1]], np.s_[1:3, :, 1:]),
]


@BOTH
@pytest.mark.parametrize("dt", [0.02, STEPS])
@pytest.mark.parametrize(("index", "same"), INDICES)
def test_an_index_picks_as_numpy_does(convert: Any, dt: Any, index: Any, same: Any) -> None:
    whole = made(convert, dt)
    part = whole[index]
    for x, y in zip(part, whole, strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(x, np.asarray(y)[same])
    of_dofs = same[:2] if isinstance(same, tuple) else same
    want = np.broadcast_to(np.asarray(whole.time), whole.shape[:2])[..., None][of_dofs][..., 0]
    np.testing.assert_array_equal(np.broadcast_to(part.time, want.shape), want)
    assert part.shape == np.asarray(whole.position)[same].shape


BAD = [5, -6, "position", None, 1.5, True, [True], [7], [[0]], (0, 0, 0, 0), torch.tensor([0.5])]


@BOTH
@pytest.mark.parametrize("index", BAD)
def test_a_wrong_index_is_an_index_error(convert: Any, index: Any) -> None:
    with pytest.raises(IndexError):
        made(convert)[index]


def test_several_lists_are_independent_of_each_other() -> None:
    whole = made()
    same = np.ix_([0, 2], [1, 2, 3], [0, 1])
    np.testing.assert_array_equal(whole[[0, 2], [1, 2, 3]].position, whole.position[same])


def test_the_mode_stays_with_rows_that_its_curve_joins() -> None:
    whole, at = made(), np.array([0.11, 0.137])
    same, want = (trajcli.sample(x, at).position for x in (whole[:, 4:9], whole))
    np.testing.assert_array_equal(same, want)
    assert (whole[1:, 2:].mode, whole[[3, 1], 5].mode) == ("jerk", "jerk")
    for rows in (np.s_[::2], [1, 3], [3, 2]):
        assert (whole[:, rows].mode, whole[:, rows].options) == ("", {})


def test_options_of_each_trajectory_and_dof_follow_the_index() -> None:
    whole = smoothed()
    bandlimit = whole.options["bandlimit"]
    np.testing.assert_array_equal(whole[[2, 0]].options["bandlimit"], bandlimit[[2, 0]])
    np.testing.assert_array_equal(whole[..., 1].options["bandlimit"], bandlimit[:, 1:])
    at = np.array([0.13])
    want = trajcli.sample(whole, at).jerk[1:2, :, 1:]
    np.testing.assert_array_equal(trajcli.sample(whole[1, :, 1], at).jerk, want)


@BOTH
def test_lengths_count_the_rows_that_are_picked(convert: Any) -> None:
    whole = replace(made(convert), lengths=convert(np.array([13, 4, 1, 9, 13])))
    np.testing.assert_array_equal(whole[3].lengths, [9])
    np.testing.assert_array_equal(whole[:, 3:10].lengths, [7, 1, 0, 6, 7])
    np.testing.assert_array_equal(whole[[1, 0], ::3].lengths, [2, 5])


@BOTH
def test_iteration_is_over_the_outputs_and_there_is_no_length(convert: Any) -> None:
    whole = made(convert)
    p, _, _, j = whole
    assert (p is whole.position, j is whole.jerk) == (True, True)
    with pytest.raises(TypeError):
        len(whole)


@BOTH
def test_the_step_is_a_number_where_steps_are_equal(convert: Any) -> None:
    assert made(convert).dt == made(convert)[:, 3:].dt == 0.02
    np.testing.assert_allclose(made(convert, STEPS).dt, STEPS, rtol=1e-12)
    np.testing.assert_allclose(made(convert, STEPS[0]).dt, STEPS[0], rtol=1e-12)
    assert tuple(made(convert)[:, :1].dt.shape) == (0,)


@BOTH
@pytest.mark.parametrize("row", [0, 5, -1, -3, np.int64(5), torch.tensor(5)])
def test_a_state_at_a_row_is_that_row(convert: Any, row: Any) -> None:
    whole = made(convert, mode="central", ends="plan")
    for x, y in zip(whole.state(row).parts().values(), whole, strict=True):
        np.testing.assert_array_equal(x, y[:, int(row)])


@BOTH
def test_a_state_at_a_time_is_on_the_curve(convert: Any) -> None:
    whole = made(convert)
    want = trajcli.sample(whole, convert(np.array([0.13])))
    assert whole.state(0.13) == State(*[x[:, 0] for x in want])
    times = np.array([0.0, 0.01, 0.1, 0.15, 0.24])
    for number, time in enumerate(times):
        one = whole[number].state(time)
        assert whole.state(convert(times)).position[number].tolist() == one.position[0].tolist()


@BOTH
def test_a_padded_trajectory_ends_at_its_last_data(convert: Any) -> None:
    whole = replace(made(convert), lengths=convert(np.array([13, 4, 2, 9, 13])))
    rows = whole.state(-2).position
    for number, row in enumerate([11, 2, 0, 7, 11]):
        assert rows[number].tolist() == whole.position[number, row].tolist()
    assert whole.state(0.01) == replace(whole, lengths=None).state(0.01)
    ends = [whole.time[n - 1] for n in (13, 4, 2, 9, 13)]
    assert whole.state(convert(np.array(ends))) == whole.state(-1)
    for row in (2, -3):
        with pytest.raises(IndexError, match="no row"):
            whole.state(row)
    for at in (0.05, convert(np.array([0.1, 0.07, 0.0, 0.0, 0.0]))):
        with pytest.raises(trajcli.InputError, match="not within"):
            whole.state(at)
    with pytest.raises(trajcli.InputError, match="not within"):
        whole[:, 5:].state(float(whole.time[5]))  # where some have no data


def test_a_state_with_an_unknown_part_is_refused() -> None:
    with pytest.raises(trajcli.UsageError, match="write"):
        trajcli.integrate(ACTIONS, "zero", 0.1, write=["position", "velocity"]).state(-1)
    with pytest.raises(trajcli.UsageError, match="resample"):
        made(scheme="euler").state(0.05)
    with pytest.raises(trajcli.InputError):
        made().state(True)
    for row in (13, -14):
        with pytest.raises(IndexError):
            made().state(row)


@BOTH
@pytest.mark.parametrize(
    ("mode", "options"),
    [("acceleration", {"scheme": "zoh"}), ("jerk", {"scheme": "foh"}), ("velocity", {})],
)
def test_plans_from_states_are_one_plan(convert: Any, mode: str, options: Any) -> None:
    want = trajcli.integrate(convert(ACTIONS), "zero", 0.02, mode, **options)
    pieces, state = [], State(convert(np.zeros((5, 2))))
    for begin in (0, 3, 6, 9):
        plan = trajcli.integrate(convert(ACTIONS[:, begin:]), state, 0.02, mode, **options)
        pieces.append(plan[:, :4])  # three steps are done, and the plan is made again
        state = plan.state(3)
    done = trajcli.concatenate(pieces, along="time")
    for x, y in zip([*done, done.time], [*want, want.time], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    assert (done.mode, done.options) == ("", {})  # sample refuses what is between the plans


@BOTH
@pytest.mark.parametrize("dt", [0.02, STEPS])
def test_parts_of_a_trajectory_are_the_whole_again(convert: Any, dt: Any) -> None:
    whole = made(convert, dt)
    assert trajcli.concatenate([whole[:2], whole[2], whole[3:]]) == whole
    in_time = trajcli.concatenate([whole[:, :5], whole[:, 5:6], whole[:, 6:]], along="time")
    assert replace(in_time, mode="jerk", options=whole.options) == whole


def test_frames_without_a_start_go_on_one_step_after_the_end() -> None:
    want = made(alignment="actions")
    first = trajcli.integrate(ACTIONS[:, :7], "zero", 0.02, "jerk", alignment="actions")
    start = first.state(-1)
    second = trajcli.integrate(ACTIONS[:, 7:], start, 0.02, "jerk", alignment="actions")
    done = trajcli.concatenate([first, second], along="time")
    np.testing.assert_allclose(done.time, want.time, rtol=1e-14)
    np.testing.assert_allclose(done.position, want.position, atol=1e-15)


@BOTH
def test_a_batch_of_unequal_lengths_is_padded(convert: Any) -> None:
    whole = made(convert)
    parts = [whole[0], whole[1:3, :4], replace(whole[3], lengths=convert(np.array([6])))]
    batch = trajcli.concatenate(parts)
    assert batch.lengths.tolist() == [13, 4, 4, 6]
    assert (batch.dt, batch.mode) == (0.02, "jerk")
    assert not np.asarray(batch.jerk)[1:3, 4:].any()
    for number, rows in enumerate(batch.lengths.tolist()):
        assert replace(batch[number, :rows], lengths=None) == whole[number, :rows]
    uneven = trajcli.concatenate([made(convert, STEPS)[0, :3], made(convert, STEPS)[1, :1], whole])
    assert uneven.time.shape == (7, 13)
    assert (np.diff(np.asarray(uneven.time)) > 0).all()
    np.testing.assert_allclose(np.diff(np.asarray(uneven.time))[0, 2:], STEPS[0, 1], rtol=1e-9)


def test_concatenation_of_different_modes_has_no_mode_and_joined_tables() -> None:
    short, long = smoothed(30), smoothed(40)
    both = trajcli.concatenate([short, long])
    for name in ("bandlimit", "residual"):
        want = np.concatenate([short.options[name], long.options[name]])
        np.testing.assert_array_equal(both.options[name], want)
    for other in (made(scheme="foh"), replace(made(), options={}), replace(made(), mode="clique")):
        joined = trajcli.concatenate([made(), other])
        assert (joined.mode, joined.options) == ("", {})
    assert isinstance(trajcli.concatenate([made(), made(torch.from_numpy)]).jerk, torch.Tensor)


@pytest.mark.parametrize(
    ("parts", "along", "error"),
    [
        ([], "batch", trajcli.InputError),
        (made(), "batch", trajcli.InputError),
        ([made()], "rows", trajcli.UsageError),
        ([made(), made()[..., :1]], "batch", trajcli.InputError),
        ([made(), made()[0]], "time", trajcli.InputError),
        ([made(), replace(made(), jerk=None)], "batch", trajcli.InputError),
        ([replace(made(), lengths=np.full(5, 3))] * 2, "time", trajcli.InputError),
        ([made(), made()], "time", trajcli.InputError),  # which starts elsewhere
    ],
)
def test_what_cannot_be_joined_is_refused(parts: Any, along: Any, error: Any) -> None:
    with pytest.raises(error):
        trajcli.concatenate(parts, along=along)


def test_plans_that_go_on_are_joined_within_vmap() -> None:
    def planned(x: torch.Tensor) -> Trajectory:
        first = trajcli.integrate(x[:4], "zero", 0.1)
        return trajcli.concatenate([first, trajcli.integrate(x[4:], first.state(-1), 0.1)], "time")

    want = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.1)
    mapped = vmap(planned)(torch.from_numpy(ACTIONS))
    torch.testing.assert_close(mapped.position[:, 0], want.position)
    torch.testing.assert_close(mapped.time[0], want.time)


def test_joining_and_states_are_differentiable() -> None:
    def positions(x: torch.Tensor) -> torch.Tensor:
        first = trajcli.integrate(x[:, :2], "zero", 0.5)
        after = trajcli.integrate(x[:, 2:], first.state(-1), 0.5)
        whole = trajcli.concatenate([first, after[:1]], along="time")
        return trajcli.concatenate([whole, whole[:, :2]]).to(torch.float64).clone().position

    x = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(positions, x)
    whole = trajcli.integrate(x, "zero", 0.5)
    at = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda u, t: trajcli.integrate(u, "zero", 0.5, scheme="zoh").state(t).position, (x, at)
    )
    assert not whole.detach().position.requires_grad
    assert isinstance(whole.numpy().position, np.ndarray)


COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    replace,
    lambda x: pickle.loads(pickle.dumps(x)),
    lambda x: x.clone(),
    lambda x: x.numpy(),
    lambda x: x.to("cpu"),
    lambda x: x.cpu(),
    lambda x: x.detach(),
    lambda x: x.to(np.float64),
]


@pytest.mark.parametrize("same", COPIES)
@pytest.mark.parametrize("whole", [made(), made(torch.from_numpy, STEPS), smoothed()])
def test_copies_are_equal(whole: Any, same: Any) -> None:
    counts = np.full(whole.shape[0], 4)
    tensors = isinstance(whole.position, torch.Tensor)
    whole = replace(whole, lengths=torch.from_numpy(counts) if tensors else counts)
    whole.position[0, 0, 0] = np.nan
    for one in (whole, whole.state(0)):
        other = same(one)
        assert type(other) is type(one)
        assert (other == one, other != one) == (True, False)
        assert isinstance(other == one, bool)
    assert same(whole).options.keys() == whole.options.keys()


def test_what_differs_in_one_thing_is_not_equal() -> None:
    whole = replace(made(), lengths=np.full(5, 13))
    changes: list[dict[str, Any]] = [
        {"position": whole.position + 1e-9}, {"jerk": None}, {"time": whole.time + 1.0},
        {"mode": "velocity"}, {"options": {**whole.options, "scheme": "foh"}}, {"options": {}},
        {"lengths": None}, {"lengths": np.full(5, 12)}, {"velocity": whole.velocity[:1]},
    ]  # fmt: skip
    for change in changes:
        assert whole != replace(whole, **change)
    assert whole != whole.state(0)
    assert whole.state(0) != State(whole.position[:, 0])
    table = smoothed()
    assert table != replace(table, options={**table.options, "bandlimit": np.ones((3, 2))})
    with pytest.raises(TypeError, match="unhashable"):
        hash(whole)


@BOTH
def test_to_moves_to_devices_and_casts_outputs(convert: Any) -> None:
    whole = made(convert)
    single = whole.to("float32")
    assert type(single.position) is type(whole.position)
    assert ("float32" in str(single.jerk.dtype), "float64" in str(single.time.dtype)) == (True,) * 2
    for moved in (whole.to("cpu").to(torch.float16), whole.to("float16").to("cpu")):
        assert (moved.position.dtype, moved.time.dtype) == (torch.float16, torch.float64)
    assert whole.to(torch.device("meta")).position.is_meta
    assert repr(whole[0].state(0).to("float32").to("cpu")).endswith("jerk [1, 2]; float32)")


def test_a_clone_shares_no_memory() -> None:
    for whole in (made(), made(torch.from_numpy)):
        clone = whole.clone()
        clone.position[:] = 7.0
        clone.time[:] = 7.0
        assert whole == made()


def test_vmap_and_jacobians_take_and_return_them() -> None:
    x = torch.from_numpy(ACTIONS)
    start = State(torch.zeros(5, 2, dtype=x.dtype), torch.ones(5, 2, dtype=x.dtype))
    want = trajcli.integrate(x, start, 0.02)
    mapped = vmap(lambda u, s: trajcli.integrate(u, s, 0.02, write="position"))(x, start)
    torch.testing.assert_close(mapped.position[:, 0], want.position)
    assert (mapped.velocity, mapped.mode) == (None, "acceleration")
    jacobian = jacrev(lambda s: trajcli.integrate(x, s, 0.02))(start)
    assert isinstance(jacobian, Trajectory)
    by_velocity: Any = jacobian.position.velocity  # of each part by each part
    rows = torch.einsum("btdbd->btd", by_velocity)
    torch.testing.assert_close(rows, want.time[None, :, None].expand_as(rows))


def test_pytrees_keep_what_is_no_tensor() -> None:
    for whole in (made(torch.from_numpy, STEPS), smoothed().to("cpu")):
        leaves, spec = pytree.tree_flatten(whole)
        assert [*map(type, leaves)] == [torch.Tensor] * 5
        assert pytree.tree_unflatten(leaves, spec) == whole
        assert spec == pytree.tree_structure(whole[:, 3:])
        assert spec != pytree.tree_structure(replace(whole, options={}))
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
    paths = pytree.tree_map_with_path(lambda path, _: pytree.keystr(path), whole.state(0))
    assert paths.jerk == ".jerk"


def twice(x: Trajectory) -> Trajectory:
    return replace(x, position=2.0 * x.position)


@pytest.mark.parametrize(
    "function",
    [
        twice,
        lambda x: x[1, 3:7],
        lambda x: x.state(-1),
        lambda x: x.detach(),
        lambda x: pytree.tree_map(lambda leaf: leaf + 1.0, x),
        lambda x: Trajectory(x.position * 2.0, None, None, None, x.time),
        lambda x: trajcli.concatenate([x, x]).position,
    ],
)
def test_compiled_functions_take_and_return_them(function: Any) -> None:
    whole = made(torch.from_numpy)
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    for x, y in zip(*map(pytree.tree_leaves, (compiled(whole), function(whole))), strict=True):
        assert torch.equal(x, y)


def test_plans_that_go_on_are_compiled_as_one_graph() -> None:
    def planned(x: torch.Tensor, start: State) -> list[Any]:
        first = trajcli.integrate(x, start, 0.1, "jerk", scheme="zoh")
        second = trajcli.integrate(x, first.state(3), 0.1, "jerk", scheme="zoh")
        return [first[:, :4], pytree.tree_map(torch.clone, second), second.state(-1)]

    x, start = torch.from_numpy(ACTIONS), State(torch.ones(2, dtype=torch.float64))
    assert torch.compile(planned, fullgraph=True, backend="eager")(x, start) == planned(x, start)


class Twice(torch.nn.Module):
    def forward(self, x: Trajectory) -> Trajectory:
        return twice(x)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_modules_take_and_return_them(tmp_path: Path, strict: bool) -> None:
    whole = made(torch.from_numpy)
    torch.export.save(torch.export.export(Twice(), (whole,), strict=strict), tmp_path / "m.pt2")
    assert torch.export.load(tmp_path / "m.pt2").module()(whole) == twice(whole)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_makes_one_batch(workers: int) -> None:
    whole = made()
    data: list[Any] = [{"rows": whole[b, : 13 - b], "start": State(ACTIONS[b, 0])} for b in (0, 1)]
    (batch,) = DataLoader(data, batch_size=2, num_workers=workers)
    assert isinstance(batch["rows"].position, torch.Tensor)
    assert batch["rows"].lengths.tolist() == [13, 12]
    assert batch["rows"] == trajcli.concatenate([x["rows"] for x in data])
    assert batch["start"] == State(ACTIONS[:2, 0])


def test_joined_states_have_zeros_for_parts_that_some_lack() -> None:
    still, moving = State(torch.ones(2)), State(torch.ones(3, 2), torch.ones(2))
    batch = torch.utils.data.default_collate([still, moving])
    assert batch == State(np.ones((4, 2)), np.array([[0.0] * 2, *[[1.0] * 2] * 3]))


ORDERS = [
    """import sys, trajcli, importlib.util
assert "torch" not in sys.modules and "trajcli.trajectory" not in sys.modules
assert importlib.util.find_spec("torch").origin
assert importlib.util.find_spec("no_such_module") is None
import torch
assert torch.__spec__.loader.get_source("torch") and torch.utils._pytree.SUPPORTED_NODES""",
    "import torch, trajcli",
    "import trajcli.trajectory, torch",
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with containers and an exported program, and the containers."""
    folder = tmp_path_factory.mktemp("saved")
    rows = {"rows": smoothed().to("cpu"), "start": made(torch.from_numpy).state(2)}
    torch.save(rows, folder / "rows.pt")

    class Planner(torch.nn.Module):
        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return trajcli.integrate(u, "zero", 0.02, "jerk").position

    torch.export.save(torch.export.export(Planner(), (torch.ones(4, 7, 3),)), folder / "plan.pt2")
    return folder, rows


def test_files_are_read_without_arbitrary_code(saved: Any) -> None:
    folder, rows = saved
    read = torch.load(folder / "rows.pt", weights_only=True)
    assert read == rows
    assert isinstance(read["rows"].options["bandlimit"], np.ndarray)


@pytest.mark.parametrize("imports", ORDERS, ids=["torch later", "torch first", "a part"])
def test_files_and_exported_programs_are_read_whatever_is_imported_first(
    saved: Any, imports: str
) -> None:
    folder, rows = saved
    code = f"""{imports}
print(torch.load("rows.pt", weights_only=True)["rows"])
print(torch.export.load("plan.pt2").module()(torch.ones(4, 7, 3)).shape)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert process.stdout == f"{rows['rows']}\ntorch.Size([4, 8, 3])\n", process.stderr


def test_a_torch_without_vmap_of_operators_is_used_without_them() -> None:
    code = """import torch
del torch.library.register_vmap, torch.library.custom_op
import trajcli
print(trajcli.integrate(torch.ones(1, 3, 2), "zero", 0.1).shape)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout == "(1, 4, 2)\n", process.stderr


def test_a_leaf_that_is_none_is_a_leaf() -> None:
    whole = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.1)  # all have the times [T]
    mapped = pytree.tree_map(lambda x: 0 if x.ndim == 3 else None, whole)
    last = vmap(lambda one: one.position[-1] * one.time[-1], in_dims=(mapped,))(whole)
    torch.testing.assert_close(last, whole.position[:, -1] * whole.time[-1])
    gradients = pytree.tree_map(lambda x: x.grad, whole)
    assert pytree.tree_map(lambda x, grad: grad, whole, gradients).position is None


def test_a_state_of_rows_without_a_batch_is_an_error() -> None:
    whole = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", STEPS)
    with pytest.raises(trajcli.InputError, match=r"position: wrong shape"):
        vmap(lambda one: one.state(-1).position)(whole)


def test_types_that_are_none_of_rows_are_refused() -> None:
    whole = trajcli.integrate(torch.from_numpy(ACTIONS), "zero", 0.1, lengths=[1, 2, 3, 4, 12])
    like = whole.to(torch.zeros(1))  # as torch.Tensor.to
    assert (like.position.dtype, like.time.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(like.lengths, whole.lengths)
    for kind in (torch.int32, float, np.dtype("int64")):
        with pytest.raises(trajcli.UsageError, match="to: not a type of rows"):
            whole.to(kind)


def test_options_of_trajectories_and_dofs_go_with_them() -> None:
    times = np.arange(40) * 0.1 + (np.arange(40) >= 22)
    rows = np.random.default_rng(1).normal(size=(2, 40, 3))
    parts = trajcli.differentiate(rows, times=times, method="central", max_gap=0.5)
    for some in (parts[[3, 0]], trajcli.concatenate([parts[3], parts[0]])):
        for found in (some, copy.deepcopy(some), pytree.tree_map(lambda x: x, some)):
            for name, want in (("recording", [1, 0]), ("first_row", [22, 0])):
                assert found.options[name].dtype == np.int64
                np.testing.assert_array_equal(found.options[name], want)
    np.testing.assert_array_equal(parts[:, 4:].options["first_row"], [4, 26, 4, 26])
    mixed = trajcli.integrate(ACTIONS, "zero", 0.1, scheme="zoh", absolute=[1])
    assert mixed[..., 1:].options["absolute"] == "0"
    assert mixed[..., ::-1].options["absolute"] == "0"
    assert mixed[..., :1] == trajcli.integrate(ACTIONS[..., :1], "zero", 0.1, scheme="zoh")


def test_a_path_without_a_name_is_refused() -> None:
    for path in ("", ".", "/"):
        with pytest.raises(trajcli.OutputError, match="not the name of a file"):
            trajcli.integrate(ACTIONS, "zero", 0.1).save(path)


def test_words_of_a_retimed_trajectory_stay_words() -> None:
    paced = trajcli.retime(trajcli.integrate(ACTIONS, "zero", 0.1, scheme="zoh"), {"velocity": 0.5})
    moved = paced.to("cpu")
    assert moved.limited_by == paced.limited_by == paced.clone().limited_by
    assert isinstance(moved.factor, torch.Tensor)
    (batch,) = DataLoader([paced, paced], batch_size=2)
    assert batch.shape == (10, 13, 2)
