"""``tensorgrow reconstruct``: turn a network back into the array or picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..errors import FileFormatError
from . import options as opt
from .console import emit_json, out

NAME = "reconstruct"


def run(
    network: opt.NetworkFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The array: .npy, .npz, .mat, HDF5, zarr, netCDF, or a picture (.png, ...).",
        ),
    ],
    max_error: opt.MaxError = None,
    max_parameters: opt.MaxParameters = None,
    as_json: opt.JsonOutput = False,
) -> None:
    """Write the array that a network represents.

    With --max-error or --max-parameters, use a smaller network from the path of the search.

    Example: [cyan]tensorgrow reconstruct photo.safetensors -o back.png[/]
    """
    import numpy as np

    from ..data.array_files import write_array
    from .inputs import load_result
    from .outputs import check_outputs
    from .stored import NETWORK_SUFFIX

    check_outputs([output])
    if output.suffix.lower() == NETWORK_SUFFIX:
        raise FileFormatError(f"{output} would be another network; give a name that ends in .npy, .png, ...")
    result = load_result(network)
    if max_error is not None or max_parameters is not None:
        smaller = result.at(max_error=max_error, max_parameters=max_parameters)
        result = replace(result, network=smaller)
    array = np.asarray(result.to_array())
    levels = (result.info.get("source") or {}).get("levels")
    write_array(output, array, levels=levels, axes=result.axes)
    if as_json:
        emit_json(
            {
                "schema": "tensorgrow.array/1",
                "command": NAME,
                "network": str(network),
                "num_parameters": result.num_parameters,
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "file": str(output),
            }
        )
    else:
        sizes = "x".join(map(str, array.shape))
        target = f"[green]{escape(str(output))}[/]"
        out.print(f"{sizes} from {result.num_parameters:,} parameters: {target}", soft_wrap=True)
