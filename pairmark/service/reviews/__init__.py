"""Reviews: decisions kept, drawn at random, judged, and what is known of all of them."""
