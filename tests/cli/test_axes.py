"""Names and coordinates on the command line: from the file, or from --names, to tables and files."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import call, document

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")


@pytest.fixture
def wind(folder):
    x = np.einsum("i,j,k->ijk", np.arange(1.0, 5), np.linspace(1, 2, 6), np.ones(3))
    days = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[s]")
    array = xarray.DataArray(
        x,
        {"lat": ("lat", [50.0, 51, 52, 53], {"units": "degrees"}), "time": days},
        ("lat", "lon", "time"),
        "wind",
        {"units": "m/s"},
    )
    array.to_netcdf("wind.nc", engine="h5netcdf")
    return array


def test_netcdf_keeps_names_coordinates_and_attributes(capsys, wind):
    call(capsys, "decompose", "wind.nc", "-e", "1e-6", "-o", "n.safetensors", "-o", "direct.nc")
    call(capsys, "reconstruct", "n.safetensors", "-o", "back.nc")
    result = tg.load("n.safetensors")
    assert result.axes.names == ("lat", "lon", "time")
    for back in (result.to_array(), xarray.open_dataarray("back.nc"), xarray.open_dataarray("direct.nc")):
        xarray.testing.assert_allclose(back, wind)
        assert back.attrs == wind.attrs and back.lat.attrs == wind.lat.attrs and back.name == "wind"
    np.testing.assert_allclose(result.predict([(51, 2, "2024-01-03")]), wind[1, 2, 2])
    shown = call(capsys, "show", "n.safetensors")
    assert "lat (4: 50.0 to 53.0), lon" in " ".join(shown.split()) and "lat: 4" in shown


def test_gaps_in_netcdf_are_filled(capsys, wind):
    wind.where(wind != 8.0).to_netcdf("gaps.nc", engine="h5netcdf")
    call(capsys, "complete", "gaps.nc", "-t", "none", "--effort", "fast")
    xarray.testing.assert_allclose(xarray.open_dataarray("gaps-completed.nc"), wind, rtol=1e-3)


def test_names(capsys, folder):
    np.save("x.npy", np.ones((16, 16)) + np.eye(16))
    options = ("-t", "4x4,4x4", "--names", "x,y", "-e", "0.5", "--effort", "fast")
    found = document(capsys, "decompose", "x.npy", *options)
    assert found["names"] == ["x", "y"] and found["leg_names"] == ["x÷4", "x÷1", "y÷4", "y÷1"]
    assert tg.load("x.safetensors").leg_names == ("x÷4", "x÷1", "y÷4", "y÷1")
    assert "y÷4: 4" in call(capsys, "show", "x.safetensors")
    call(capsys, "decompose", "x.npy", "--names", "x,y,z", code=2)


def test_axes_of_pictures_have_names(capsys, photo):
    call(capsys, "decompose", "photo.png", "-t", "4x8,4x8,3", "-e", "0.3", "--effort", "fast")
    assert tg.load("photo.safetensors").leg_names == ("row÷8", "row÷1", "column÷8", "column÷1", "colour")
