using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// The response of a call that does not stream responses. It is sent with the end of its call, except a large one, with which the call waits until the
/// connection has taken it. Pooled with its call and used by the call's own thread.
/// </summary>
internal sealed class OnlyResponse
{
    /// <summary>A response up to this size is not waited for and not counted.</summary>
    private const int UnwatchedBytes = 16 << 10;

    private readonly CallSettings _settings;
    private readonly FrameWriter _frames;
    private readonly HeldMessage? _leaving;

    public OnlyResponse(ServerCall call)
    {
        _settings = call.Settings;
        _frames = new FrameWriter { Announced = _settings.Memory is null ? null : Hold };
        if (_settings.Memory is not null)
            _leaving = new HeldMessage(call.EndSlow);
    }

    /// <summary>Whether anything has been written.</summary>
    public bool HasContent { get; private set; }

    /// <summary>Whether serialization failed in the middle of a frame. The stream can then only be reset.</summary>
    public bool LeftPartialFrame => HasContent && _frames.LeftPartialFrame;

    /// <summary>Whether the response is large. The caller then gets time to read it before the call ends, and its bytes are counted until then.</summary>
    public bool IsLarge => _leaving is { IsHeld: true };

    public void Begin() => HasContent = false;

    public void End() => Release();

    public void Write<T>(IHttpResponseBodyFeature body, T message, Marshaller<T> marshaller)
    {
        try
        {
            _frames.Write(body.Writer, message, marshaller, _settings.ResponseBytesMax);
        }
        finally
        {
            HasContent |= _frames.HasWritten;
        }
    }

    /// <summary>Sends the headers alone, before the message.</summary>
    public Task SendHeadersAsync(IHttpResponseBodyFeature body)
    {
        HasContent = true;
        return body.Writer.FlushAsync().AsTask();
    }

    /// <summary>Waits until the connection has taken what was written.</summary>
    public async ValueTask FlushAsync(IHttpResponseBodyFeature body)
    {
        await body.Writer.FlushAsync().ConfigureAwait(false);
        Release();
    }

    private void Hold(int bytes)
    {
        if (bytes <= UnwatchedBytes)
            return;
        if (!_settings.Memory!.Leaving.TryHold(_leaving!, bytes))
            throw new RpcException(new Status(StatusCode.Unavailable, "The server has reached its limit of large responses that wait to be read. Try again."));
        _leaving!.IsHeld = true;
    }

    private void Release()
    {
        if (_leaving is not { IsHeld: true })
            return;
        _leaving.IsHeld = false;
        _settings.Memory!.Leaving.Release(_leaving);
    }
}
