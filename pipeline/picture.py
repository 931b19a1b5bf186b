"""A picture of a day: price and volume of each symbol, minute by minute."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

INCHES_WIDE, INCHES_A_SYMBOL = 12, 3.2
PRICE, RANGE, VOLUME = "#1f4e79", "#9dc3e6", "#a6a6a6"


def draw(bars: Any, date: datetime.date, file: Path) -> None:
    """Draw a day's bars. `bars`: a DataFrame of pandas with the columns of `pipeline.bars`."""
    import matplotlib as mpl

    mpl.use("Agg")  # no screen is needed
    from matplotlib import dates as ticks
    from matplotlib import pyplot

    symbols = sorted(bars["symbol"].unique())
    height = INCHES_A_SYMBOL * max(1, len(symbols))
    figure, axes = pyplot.subplots(max(1, len(symbols)), figsize=(INCHES_WIDE, height), sharex=True, squeeze=False)
    for symbol, [price] in zip(symbols, axes, strict=False):
        of_symbol = bars[bars["symbol"] == symbol].sort_values("minute")
        minutes = of_symbol["minute"].to_list()
        low, high, close = (of_symbol[name].astype(float).to_list() for name in ("low", "high", "close"))
        price.fill_between(minutes, low, high, color=RANGE, step="mid", linewidth=0)
        price.plot(minutes, close, color=PRICE, linewidth=1)
        price.set_ylabel(f"{symbol}, $")
        volume = price.twinx()
        volume.bar(minutes, of_symbol["volume"].to_list(), width=1 / 1440, color=VOLUME, alpha=0.5)
        volume.set_ylim(0, 4 * max(of_symbol["volume"]))  # the lowest quarter
        volume.set_ylabel("shares a minute")
    axes[0][0].set_title(f"{date.isoformat()}: {', '.join(symbols) or 'no trades'} (UTC minutes)")
    axes[-1][0].xaxis.set_major_formatter(ticks.DateFormatter("%H:%M"))
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    pyplot.close(figure)
