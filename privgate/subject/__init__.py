"""The subject: what is judged, by digest: data, recipe, domain, release, claim."""
