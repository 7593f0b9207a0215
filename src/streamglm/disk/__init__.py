"""The write-behind tier: kept states as records on disk, and an index of what is there.

A record is one page of a token chain, or the fixed part of a kept state, as one rank holds it. The
life of what is learned, and what a crash leaves of it:

    absent      nothing                        nothing
    writing     files under `tmp-*`            the old index; the folder is removed at the next open
    published   files in place, rows in index  both, or files without a row: these are removed
    reading     published, and borrowed        published
    removing    rows gone, then files          one without the other: repaired

`docs/disk-format.md` has the layout and the crash table.
"""
