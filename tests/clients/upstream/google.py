"""Images of Google's models: Gemini's by generateContent, Imagen's by predict."""

from .media import picture
from .scenes import require

GEMINI, IMAGEN = "gemini-2.5-flash-image", "imagen-4.0-generate-001"


def generate(body):
    """Returns one image after some text, or a refusal."""
    require(body["generationConfig"]["responseModalities"] == ["TEXT", "IMAGE"], "images to be asked for")
    (part,) = body["contents"][0]["parts"]
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 1290, "totalTokenCount": 1295}
    if "scene:unsafe" in part["text"]:
        return {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 5}}
    if "scene:chatty" in part["text"]:
        parts = [{"text": "Which cat do you mean?"}]
    else:
        parts = [{"text": "Here:"}, {"inlineData": {"mimeType": "image/png", "data": picture(part["text"], 0)}}]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


def predict(body):
    """Returns the requested number of images, with one filtered out."""
    (instance,) = body["instances"]
    count, kind = body["parameters"]["sampleCount"], body["parameters"]["outputOptions"]["mimeType"]
    made = [{"mimeType": kind, "bytesBase64Encoded": picture(instance["prompt"], index)} for index in range(count)]
    return {"predictions": [made[0], {"raiFilteredReason": "One was held back."}, *made[1:]]}


METHODS = {
    f"/v1beta/models/{GEMINI}:generateContent": generate,
    f"/v1beta/models/{IMAGEN}:predict": predict,
}
