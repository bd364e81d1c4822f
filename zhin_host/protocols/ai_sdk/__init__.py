"""The AI SDK's UI message stream: what `useChat` and `Chat` of the npm package `ai` speak (docs/ai-sdk.md)."""

from zhin_host.protocols.ai_sdk.routes import AiSdk

__all__ = ["AiSdk"]
