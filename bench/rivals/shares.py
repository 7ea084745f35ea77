"""Draws docs/pictures/shares.svg: bits per item in a chain whose layers double in size, for three ways of dividing an
error rate of 1% among the layers.

    python3 bench/rivals/shares.py
"""

import math
from pathlib import Path

LAYERS = 17
PICTURE = Path(__file__).parent.parent.parent / "docs" / "pictures" / "shares.svg"
SHARES = {
    "halved from layer to layer, as RedisBloom's": lambda j: 0.5 ** (j + 1),
    "6/π²/(j+1)²": lambda j: 6 / math.pi**2 / (j + 1) ** 2,
    "6/((3j+2)(3j+5)), ours": lambda j: 6 / ((3 * j + 2) * (3 * j + 5)),
}
COLOURS = ["#c44e52", "#8c8c8c", "#4c72b0"]
LEFT, TOP, WIDTH, HEIGHT = 60, 30, 560, 260
LOW, HIGH = 10, 36


def bits(share, layers: int) -> float:
    """Bits per item of the capacity in a chain of `layers` layers. A CLASSIC layer has n·log2(1/p)/ln 2 bits."""
    sizes = [2**j * math.log2(1 / (0.01 * share(j))) / math.log(2) for j in range(layers)]
    return sum(sizes) / (2**layers - 1)


def main() -> None:
    across = lambda layer: LEFT + WIDTH * layer / (LAYERS - 1)
    down = lambda value: TOP + HEIGHT * (HIGH - value) / (HIGH - LOW)
    lines = []
    for value in range(LOW, HIGH + 1, 5):
        lines.append(f'<path d="M{LEFT} {down(value):.1f}h{WIDTH}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value}</text>')
    for layer in range(0, LAYERS, 2):
        lines.append(f'<text x="{across(layer):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{layer + 1}</text>')
    lines.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">layers</text>')
    lines.append(f'<text x="{LEFT}" y="{TOP - 12}">bits for each item of the capacity, at 1%</text>')
    for (name, share), colour in zip(SHARES.items(), COLOURS, strict=True):
        assert sum(map(share, range(10_000))) <= 1
        points = " ".join(f"{across(j):.1f},{down(bits(share, j + 1)):.1f}" for j in range(LAYERS))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = TOP + 18 + 18 * COLOURS.index(colour)
        lines.append(f'<text x="{LEFT + 16}" y="{y}" fill="{colour}">{name}</text>')
    size = f'width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 50}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    PICTURE.write_text("\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *lines, "</svg>", ""]))


if __name__ == "__main__":
    main()
