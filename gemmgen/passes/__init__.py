"""From request to instructions: validate, build, pipeline, expand, predicate, simplify. One a file."""
