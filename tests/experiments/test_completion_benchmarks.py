"""Benchmarks of completion on made-up pictures and counts: masks, rows, claims."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import traffic, uncertainty
from benchmarks.benchmark import BenchmarkSettings
from benchmarks.completion import beside, photos
from benchmarks.completion.command import block_means
from benchmarks.registry import find_benchmark

from tensorgrow.experiments.harness import Case, Results, Row


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a smooth picture, and counts of two car parks."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("data")
    for name in ("testimages", "traffic"):
        (folder / name).mkdir()
    rows, columns = np.mgrid[:256, :256] / 255.0
    picture = np.stack([rows, columns, rows * columns], -1)
    image.fromarray(np.round(255 * picture).astype(np.uint8)).save(folder / "testimages" / "house.png")
    rng = np.random.default_rng(0)
    day = 100 * np.exp(-(((np.arange(18) - 9) / 5.0) ** 2))
    parks = np.round(
        rng.uniform(1, 3, (30, 1, 1)) * rng.uniform(1, 3, (77, 1)) * day + rng.uniform(1, 5, (30, 77, 18))
    )
    np.savez(folder / "traffic" / "birmingham_parking.npz", tensor=parks.astype(np.uint16))
    return folder


def settings_of(name: str, data, tmp_path, *parts: str, **options) -> BenchmarkSettings:
    benchmark = find_benchmark(name)
    common = {"quick": True, "data": data, "scratch": tmp_path, "parts": parts or benchmark.parts}
    return benchmark.settings(options=options, **common)


def run_case(name: str, key: str, settings: BenchmarkSettings) -> Row:
    benchmark = find_benchmark(name)
    (case,) = [c for c in benchmark.cases(settings) if c.key == key]
    return benchmark.work(case, settings)


# -- masks -----------------------------------------------------------------------------------------------


def test_published_masks_are_drawn_as_published():
    """Written out as in the published scripts, with numpy's global generator."""
    np.random.seed(1000)  # noqa: NPY002
    single = np.round(np.random.rand(3, 4, 48) + 0.5 - 0.4)  # noqa: NPY002
    np.random.seed(1000)  # noqa: NPY002
    days = np.round(np.random.rand(3, 4, 2) + 0.5 - 0.4)  # noqa: NPY002
    assert np.array_equal(traffic.make_mask((3, 4, 48), "random", 0.4), single == 1)
    whole = traffic.make_mask((3, 4, 48), "days", 0.4)
    for day in range(2):
        for hour in range(24):
            assert np.array_equal(whole[:, :, 24 * day + hour], days[:, :, day] == 1)
    np.random.seed(1000)  # noqa: NPY002
    fibres = np.round(np.random.rand(3, 4) + 0.5 - 0.4)  # noqa: NPY002
    assert np.array_equal(traffic.make_mask((3, 4, 18), "days", 0.4)[:, :, 5], fibres == 1)


def test_zeros_are_neither_observed_nor_judged():
    y = np.arange(60.0).reshape(3, 4, 5) % 7
    seen, judged = traffic.published_mask(y, "random40")
    assert np.array_equal(seen | judged, y != 0)
    assert not (seen & judged).any()


def test_block_means_are_whole_255ths():
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3)) / 255.0
    small = block_means(picture, 4)
    assert small.shape == (4, 4, 3)
    assert np.abs(small[1, 2] - picture[2:4, 4:6].mean((0, 1))).max() <= 0.5 / 255 + 1e-12
    np.testing.assert_allclose(255 * small, np.round(255 * small), atol=1e-9)
    np.testing.assert_allclose(block_means(picture, 8), picture)


# -- rows ------------------------------------------------------------------------------------------------


def test_a_photo_is_interpolated(data, tmp_path):
    """Bilinear: cubic pieces are better than linear ones, and both far above the noise of 8 bits."""
    settings = settings_of("completion", data, tmp_path, "photos")
    rows = {
        m: run_case("completion", f"photos/cpu/house@30/{m}/default", settings) for m in ("linear", "cubic")
    }
    assert all(r["psnr_filled"] > 40 and r["ssim_filled"] > 0.95 for r in rows.values())


def test_the_command_is_run_and_its_document_read(data, tmp_path, monkeypatch):
    """A stand-in for the command, which has tests of its own."""
    from benchmarks.completion import command

    stand_in = tmp_path / "python"
    document = (
        '{"test_error": 0.1, "psnr": 30.0, "num_parameters": 7, "members": null, "observed": 5, '
        '"stop": {"name": "VALIDATION"}, "interpolation": {"methods": ['
        '{"method": "linear interpolation", "error": 0.2}, {"method": "cubic interpolation", "error": 0.3}]}}'
    )
    stand_in.write_text(f"#!/bin/sh\ntest -f photo.png || exit 1\necho '{document}'\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(command.sys, "executable", str(stand_in))
    settings = settings_of("completion", data, tmp_path, "command")
    row = run_case("completion", "command/cpu/house-32@30/ours/default", settings)
    assert (row["error"], row["linear"], row["members"]) == (0.1, 0.2, 1)
    results = Results(tmp_path / "r.json")
    results.put(Case("command/cpu/house-32@30/ours/default", {"source": "house", "side": 32}), row)
    met, others, _ = command.claims(results)
    assert met["met"] is True and others["met"] is None
    picture = command.load_other("hopper", 16)  # higher than wide, and comes with matplotlib
    assert picture.shape == (16, 16, 3) and 0.0 <= picture.min() < picture.max() <= 1.0
    stand_in.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(RuntimeError, match="broken"):
        run_case("completion", "command/cpu/house-32@30/ours/default", settings)


def test_traffic_is_filled_in(data, tmp_path):
    settings = settings_of("traffic", data, tmp_path, max_seconds=0.5)
    rows = {
        k: run_case("traffic", f"parking/cpu/random40/{k}", settings)
        for k in ("ours/default", "halrtc/default")
    }
    assert all(0.0 < r["rmse"] < 30.0 for r in rows.values())
    assert rows["ours/default"]["judged"] == rows["halrtc/default"]["judged"]


def test_intervals_of_a_bayesian_cp_hold_what_they_should():
    pytest.importorskip("smurff")
    rng = np.random.default_rng(0)
    x = np.einsum("ia,ja,ka->ijk", *(rng.standard_normal((d, 2)) for d in (14, 13, 12)))
    y = x + 0.1 * rng.standard_normal(x.shape)
    seen = rng.random(x.shape) < 0.5
    where = rng.permutation(np.argwhere(~seen))
    (found, half), row = uncertainty.sample_cp(y, seen, where, 3, 50)
    true = y[tuple(where.T)]
    assert row["size"] == 3 * 39
    assert np.sqrt(np.mean((found - true) ** 2)) < 0.2
    assert 0.8 < np.mean(np.abs(found - true) <= half) < 0.97


# -- claims ----------------------------------------------------------------------------------------------


def test_claims_of_photos_count_the_best_run_of_every_rival(tmp_path):
    results = Results(tmp_path / "r.json")
    values = {
        "photos/cpu/house@10/ours/members4": 28.0,
        "photos/cpu/house@10/ours/members7": 30.0,
        "photos/cpu/house@10/tnn/truncation0.01": 27.0,
        "photos/cpu/house@10/tnn/truncation0.05": 28.2,
        "images/cuda/house@10/tr/stored-rank008": 28.4,
        "images/cuda/house@10/ours/stored": 50.0,
    }
    for key, value in values.items():
        row = {"psnr_filled": value, "ssim_filled": value / 100, "seconds": 1.0}
        results.put(Case(key, {"method": key.split("/")[3]}), row)
    found = {c["claim"]: c for c in photos.claims(results)}
    assert [c["met"] for c in found.values()] == [False, False, False, True, True, True]
    gain = found["photos, 7 members: mean PSNR above the best rival of each cell, dB"]
    assert gain["measured"] == pytest.approx(1.6)
    (line,) = photos.table(results, "psnr_filled")
    assert (line["truncated HaLRTC"], line["TR-ALS"], line["ours, members4"]) == (28.2, 28.4, 28.0)


def test_claims_of_traffic_compare_with_the_best_published_value(tmp_path):
    results = Results(tmp_path / "r.json")
    row = {"rmse": 69.0, "mape": 12.6, "size": 1, "seconds": 1.0, "hit_limit": False}
    results.put(Case("parking/cpu/days40/ours/default", {}), row)
    root, share = traffic.claims(results)
    assert (root["limit"], root["met"]) == (69.5, True)
    assert (share["limit"], share["met"]) == (12.2, False)


def test_claims_of_intervals_are_about_means_over_masks(tmp_path):
    results = Results(tmp_path / "r.json")
    for mask, coverage in enumerate((0.87, 0.91)):
        row = {"coverage": coverage, "width": 2.0, "rmse": 1.0, "seconds": 1.0}
        results.put(Case(f"planted/tt@1/ours/default/mask{mask}", {}), row)
        for rank, error in ((5, 3.0), (10, 2.0)):
            row = {"coverage": 0.9, "width": 4.0 if rank == 10 else 1.0, "rmse": error, "seconds": 1.0}
            results.put(Case(f"planted/tt@1/bcp/rank{rank:02}/mask{mask}", {"rank": rank}), row)
    (line,) = uncertainty.summarise(results)
    assert line["tensorgrow: coverage"] == pytest.approx(0.89)
    assert (line["rank"], line["width ratio"]) == (10, 0.5)
    assert [c["met"] for c in uncertainty.claims([line])] == [True, True, True]


# -- tables of pages -------------------------------------------------------------------------------------


def picture_row(method: str, view: str, error: float, **more) -> Row:
    params = {"method": method, "view": view, "rank": 3, "max_seconds": 30.0}
    return {
        "params": params,
        "error": error,
        "psnr": 20.0,
        "ssim": 0.5,
        "size": 1234,
        "hit_limit": False,
        "environment": 0,
        **more,
    }


def test_pictures_stand_beside_the_best_run_of_every_rival(tmp_path):
    results = Results(tmp_path / "r.json")
    results.cases.update(
        {
            "images/cpu/house@20/ours/stored": picture_row("ours", "stored", 0.06),
            "images/cuda/house@20/ours/stored": picture_row("ours", "stored", 0.05),  # the CPU's counts
            "images/cpu/house@20/ours/paired": picture_row("ours", "paired", 0.09),
            "images/cpu/house@20/cp/plain-rank003": picture_row("cp", "plain", 0.10, hit_limit=True),
            "images/cuda/house@20/tr/stored-rank003": picture_row("tr", "stored", 0.08),
            "images/cuda/house@20/tr/stored-rank004": picture_row("tr", "stored", 0.07),
            "images/cuda/house@20/tt/stored-rank003": {"failed": "not today"},
        }
    )
    tables = beside.tables(results)
    (line,) = tables["images: beside rivals"]
    assert line == {
        "picture, known": "house, 20 %",
        "ours, stored": "**0.060** / 20.0 / 0.50 / 1,234",
        "ours, paired": "0.090 / 20.0 / 0.50 / 1,234",
        "CP": "0.100 / 20.0 / 0.50 / 1,234",
        "Tucker": None,
        "TT-ALS": None,
        "TR-ALS": "0.070 / 20.0 / 0.50 / 1,234",
    }
    stored, paired = tables["images: counts"]
    assert (stored["smallest error"], paired["smallest error"]) == (1, 0)
    assert stored["most"] == pytest.approx(7 / 6)
    assert paired["best rival / ours, least"] == pytest.approx(7 / 9)
    limits = {row["method"]: row for row in tables["images: limits"]}
    assert (limits["CP"]["runs"], limits["CP"]["at their limit"]) == (1, 1)
    assert limits["TR-ALS"]["at their limit"] == 0
    assert tables["video: beside rivals"] == tables["einstein: ours"] == []


def test_gaps_of_counts_stand_beside_rivals_and_the_ends_of_their_ladders(tmp_path):
    def row(rmse: float, mape: float, **params) -> Row:
        return {
            "params": {"max_seconds": 20.0, **params},
            "rmse": rmse,
            "mape": mape,
            "hit_limit": False,
            "environment": 0,
        }

    results = Results(tmp_path / "r.json")
    results.cases.update(
        {
            "traffic/cpu/taxi@days30/means/slot": row(6.0, 60.0),
            "traffic/cpu/taxi@days30/ours/default": row(4.0, 50.0),
            "traffic/cpu/taxi@days30/ours/held-out-days": row(3.0, 55.0),
            "traffic/cpu/taxi@days30/tt/rank002": row(5.0, 45.0, rank=2),
            "traffic/cpu/taxi@days30/tt/rank004": row(3.5, 52.0, rank=4),
        }
    )
    tables = beside.tables(results)
    (line,) = tables["traffic: beside rivals"]
    assert line["removed"] == "taxi, 30 % of days"
    assert line["slot means"] == "6.00 / 60.0"
    assert line["ours"] == "4.00 / **50.0**"
    assert line["ours, whole days held out"] == "**3.00** / 55.0"
    assert line["TT-ALS"] == "3.50 / 52.0"  # by RMSE, whatever its MAPE
    wins = [(c["ours"], c["gaps"], c["smallest RMSE"], c["smallest MAPE"]) for c in tables["traffic: counts"]]
    assert wins == [("default", 1, 0, 1), ("whole days held out", 1, 1, 0), ("the better of both", 1, 1, 1)]
    ends = {c["method"]: c["gaps where the largest rank is the best"] for c in tables["traffic: limits"]}
    assert ends == {"tensorgrow": None, "TT-ALS": 1}
