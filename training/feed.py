"""Live data: processes that generate and pack batches, and a thread that moves them to the device ahead of time."""
import multiprocessing
import os
import threading
from queue import Queue

import torch

from data.mix import Mixture


def produce(queue, seed, size, paths):
    torch.set_num_threads(1)
    os.nice(10)                 # compilation at the start comes first
    for batch in Mixture(seed, **paths).batches(size):
        queue.put((batch.tokens, batch.weights, batch.positions, batch.bounds))


class Feed:
    def __init__(self, device, size, seed, workers, paths):
        self.device = device
        context = multiprocessing.get_context("fork")       # before any CUDA call of the parent
        self.raw = context.Queue(maxsize=4 * workers)
        self.workers = [context.Process(target=produce, args=(self.raw, seed * 1000 + i, size, paths), daemon=True)
                        for i in range(workers)]
        for worker in self.workers:
            worker.start()
        self.ready = Queue(maxsize=8)

    def start(self):
        """Starts the moving thread; call once the device is in use."""
        threading.Thread(target=self.move, daemon=True).start()

    def move(self):
        while True:
            arrays = self.raw.get()
            tensors = [torch.from_numpy(a) for a in arrays]
            self.ready.put([t.pin_memory() for t in tensors] if self.device != "cpu" else tensors)

    def next(self):
        return self.ready.get()

    def stop(self):
        for worker in self.workers:
            worker.terminate()
