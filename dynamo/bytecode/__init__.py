"""Python bytecode: versions evened out on the way in (`normalize`), written on the way out (`Emitter`)."""
