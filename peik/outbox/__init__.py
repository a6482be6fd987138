"""The outbox: letters from the moment they are accepted until Telegram has said yes or a definite no."""
