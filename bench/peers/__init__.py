"""Queues that people would pick instead, each in its documented best way. Nothing here imports Peik."""
