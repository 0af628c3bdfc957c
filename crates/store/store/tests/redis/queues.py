"""Does what users of the task queues Celery and Huey do: queues.py PORT"""

import datetime
import os
import subprocess
import sys

import celery
import huey

# A worker of Celery imports this file, too.
PORT = os.environ.get("QUEUES_PORT") or sys.argv[1]
TIMEOUT = 60
SERVER = f"redis://127.0.0.1:{PORT}"

app = celery.Celery("queues", broker=f"{SERVER}/3", backend=f"{SERVER}/4")
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)
tasks = huey.RedisHuey("jobs", port=int(PORT), db=5)
ordered = huey.PriorityRedisHuey("priorities", port=int(PORT), db=6)


@app.task
def add(one, other):
    return one + other


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def fails_once(self):
    if self.request.retries == 0:
        raise self.retry(exc=ValueError("once"))
    return self.request.retries


@app.task
def total(numbers):
    return sum(numbers)


@tasks.task()
def double(number):
    return 2 * number


@ordered.task()
def name(text):
    return text


def celery_works():
    command = [sys.executable, "-m", "celery", "-A", "queues", "worker", "--pool=solo"]
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "QUEUES_PORT": PORT, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=folder, env=environment) as worker:
        try:
            assert add.delay(2, 3).get(timeout=TIMEOUT) == 5
            group = celery.group(add.s(number, number) for number in range(20))
            assert group.apply_async().get(timeout=TIMEOUT) == [2 * number for number in range(20)]
            chord = celery.chord([add.s(number, 1) for number in range(5)], total.s())
            assert chord.apply_async().get(timeout=TIMEOUT) == 15
            assert fails_once.delay().get(timeout=TIMEOUT) == 1
            assert add.apply_async((1, 1), countdown=1).get(timeout=TIMEOUT) == 2
        finally:
            worker.terminate()
            worker.wait(timeout=TIMEOUT)


def huey_works():
    for queue in (tasks, ordered):
        queue.flush()
    result = double(21)
    assert tasks.pending_count() == 1
    assert tasks.execute(tasks.dequeue()) == 42 and result.get() == 42
    double.schedule((4,), delay=1000)
    tasks.add_schedule(tasks.dequeue())
    assert tasks.scheduled_count() == 1 and tasks.read_schedule() == []
    due = tasks.read_schedule(datetime.datetime.now() + datetime.timedelta(seconds=2000))
    assert len(due) == 1 and tasks.scheduled_count() == 0
    for text, priority in (("low", 1), ("high", 9), ("middle", 5)):
        name(text, priority=priority)
    assert [ordered.execute(ordered.dequeue()) for _ in range(3)] == ["high", "middle", "low"]
    with tasks.lock_task("lock"):
        try:
            with tasks.lock_task("lock"):
                raise AssertionError("it is locked")
        except huey.exceptions.TaskLockedException:
            pass


if __name__ == "__main__":
    huey_works()
    celery_works()
