"""What learners share."""
