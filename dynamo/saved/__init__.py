"""Saved programs: dynamo.export(fn)(*args).save(path), and dynamo.load(path) without fn's source.

    container   one file of named sections, each with its hash
    signature   a program's inputs and results: nests of tensors and numbers, and checks
    saving      from an exported program to sections
    loading     from sections to a program that can be called
    compilers   the compilers of its graphs, or of plans found in the cache
    show        the text of `python -m dynamo show`

The format is described in tutorials/saved_programs.md.
"""
