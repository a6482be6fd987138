"""The people who run Peik at the dashboard: who they are, that they are signed in, what they did. All of it in papers."""
