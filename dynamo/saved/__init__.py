"""Saved programs: dynamo.export(fn)(*args).save(path), and dynamo.load(path) without fn's source.

    container   one file of named sections, each with its hash
    signature   what a program takes and returns: nests of tensors and numbers, and what is checked
    saving      from an exported program to sections
    loading     from sections to a program that can be called
    compilers   what compiles its graphs, or finds their plans in the cache
    show        the text of `python -m dynamo show`

The format is described in tutorials/saved_programs.md.
"""
