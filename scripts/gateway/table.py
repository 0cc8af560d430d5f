"""A table for people: columns as wide as what stands in them."""


def show(rows, head):
    """Prints rows under a head; numbers to the right, words to the left."""
    rows = list(rows)
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    right = [all(is_number(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(cells):
        pads = [cell.rjust(width) if side else cell.ljust(width) for cell, width, side in zip(row, widths, right)]
        print("  ".join(pads).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def is_number(cell):
    return isinstance(cell, (int, float)) or cell == "" or cell.replace(".", "").strip("+-").isdigit()
