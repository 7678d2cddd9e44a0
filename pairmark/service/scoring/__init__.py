"""From a request to its answer: parse, resolve, score, decide, answer, one frozen record each."""
