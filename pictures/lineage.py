"""What a table with row lineage is: the versions of the table of the first page, and its feed."""

from __future__ import annotations

from pyspark.sql import SparkSession
from svg import Picture

from pyspark_lance import LanceTable

_COLUMNS = {
    "_rowid": ("_rowid", 52),
    "id": ("id", 28),
    "kind": ("kind", 46),
    "price": ("price", 46),
    "_row_created_at_version": ("created", 54),
    "_row_last_updated_at_version": ("changed", 58),
}
_TITLES = ("append", "update id = 2", "delete id = 3")
_WIDTH, _LEFT, _GAP, _LINE = 940, 20, 24, 24
_FEED = ("_commit_version", "_change_type", "_rowid", "id", "kind", "price")
_LEGEND = {
    "inserted": "inserted by the version",
    "updated": "updated by the version",
    "deleted": "deleted by the version",
}
_FILL_OF = {"insert": "inserted", "delete": "deleted"}


def draw(spark: SparkSession, folder: str) -> str:
    """The picture, as SVG; the table is made below ``folder``."""
    path = f"{folder}/events"
    rows = [(1, "click", 0.5), (2, "view", 1.5), (3, "click", 2.5)]
    events = spark.createDataFrame(rows, "id bigint, kind string, price double").coalesce(1)
    events.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.update("id = 2", {"price": "price * 10"})
    table.delete("id = 3")
    picture = Picture(_WIDTH, 356, "A Lance table: its versions, its rows with ids, and its feed")
    card = (_WIDTH - 2 * _LEFT - 2 * _GAP) / 3
    for place, title in enumerate(_TITLES):
        left = _LEFT + place * (card + _GAP)
        _version(picture, left, card, table, place + 1, title)
        if place:
            picture.line([(left - _GAP + 3, 90), (left - 4, 90)], "soft")
    _feed(picture, table)
    return picture.svg()


def _version(
    picture: Picture, left: float, width: float, table: LanceTable, version: int, title: str
) -> None:
    picture.box(left, 16, width, 154, "card")
    picture.text(left + 8, 36, f"version {version}", 13, bold=True)
    picture.text(left + width - 8, 36, title, 12, fill="soft", at="end", mono=True)
    picture.box(left, 46, width, _LINE, "head", 0)
    _cells(picture, left, 62, [name for name, _ in _COLUMNS.values()], "soft")
    found = table.scan(list(_COLUMNS), version=version).orderBy("_rowid").collect()
    for number, row in enumerate(found):
        bottom = 62 + _LINE * (number + 1)
        touched = row["_row_last_updated_at_version"] == version
        fill = "text"
        if touched:
            fill = "inserted" if row["_row_created_at_version"] == version else "updated"
        _cells(picture, left, bottom, [str(row[name]) for name in _COLUMNS], fill)


def _cells(picture: Picture, left: float, bottom: float, texts: list[str], fill: str) -> None:
    for text, (_, width) in zip(texts, _COLUMNS.values(), strict=True):
        picture.text(left + 8, bottom, text, 11.5, fill=fill, mono=True)
        left += width


def _feed(picture: Picture, table: LanceTable) -> None:
    top = 200
    picture.text(_LEFT, top, "Change feed of versions 2 and 3", 13, bold=True)
    picture.text(_WIDTH - _LEFT, top, "table.changes(2)", 12, fill="soft", at="end", mono=True)
    picture.box(_LEFT, top + 12, _WIDTH - 2 * _LEFT, 4 * _LINE + 2, "card")
    picture.box(_LEFT, top + 12, _WIDTH - 2 * _LEFT, _LINE, "head", 0)
    places = (0, 170, 350, 440, 500, 580)
    changes = table.changes(2).orderBy("_commit_version", "_change_type").collect()
    texts = [list(_FEED), *([str(row[name]) for name in _FEED] for row in changes)]
    for number, cells in enumerate(texts):
        fill = _FILL_OF.get(cells[1], "updated") if number else "soft"
        for place, text in zip(places, cells, strict=True):
            picture.text(
                _LEFT + 8 + place, top + 28 + number * _LINE, text, 11.5, fill=fill, mono=True
            )
    left = _LEFT
    for fill, text in _LEGEND.items():
        picture.box(left, top + 131, 10, 10, fill)
        picture.text(left + 16, top + 140, text, 11.5, fill="soft")
        left += 200
