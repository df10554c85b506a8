"""What handlers stand on: views, quotas, sessions, answers that wait."""
