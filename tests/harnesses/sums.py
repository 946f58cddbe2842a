"""The task of inspect-ai: the questions of the file that HARNESS_QUESTIONS names."""

import os

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


@task
def sums():
    fields = FieldSpec(input="question", target="answer")
    return Task(dataset=json_dataset(os.environ["HARNESS_QUESTIONS"], fields), solver=generate(), scorer=exact())
