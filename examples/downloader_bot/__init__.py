"""A bot that downloads what people send links to. It shows long jobs on Peik; see examples/downloader_bot/README.md."""
