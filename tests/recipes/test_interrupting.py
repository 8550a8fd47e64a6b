"""Ctrl-C during a training."""

import os
import signal
import threading

import pytest

from flatout.recipes.interrupting import Interrupt


class Dropping:
    """Its destructor is interrupted, where Python drops every exception."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the handler runs between instructions
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_destructor_swallows_is_raised_at_the_next_step() -> None:
    interrupt = Interrupt()
    with interrupt.listening():
        interrupt.on_train_batch_start()
        thing = Dropping()
        del thing
        with pytest.raises(KeyboardInterrupt):
            interrupt.on_train_batch_start()
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def listen() -> None:
        with Interrupt().listening():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [before]
