// Writes the messages of a request to HttpClient. A write there costs more than a message. So messages written while a write is in progress are sent together
// with the next one, and messages written while the reader of the responses lends its thread are sent when that thread is returned, that is, when the caller
// awaits something that is not complete.
// There are two buffers: one is filled while the other is sent. Everything takes _gate, except writes on the lent thread: until it is returned, or the only
// writer continues on another thread, nobody else uses the buffer that is filled. One task at a time runs the loop that sends.
using System.Net;
using Grpc.Core;
using Grpc.Shared;
using KvCluster;

namespace Grpc.Net.Client.Calls;

/// <summary>A request that is a stream.</summary>
internal sealed class RequestStreamContent : HttpContent
{
    /// <summary>From this size on writes wait until HTTP's flow control lets some of it be sent.</summary>
    private const int BufferedBytesMax = 64 * 1024;

    private readonly int _messageBytesMax;
    private readonly Lock _gate = new();
    private readonly FrameWriter _frames = new();
    private readonly TaskCompletionSource _sent = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private MessageBuffer _filling = new();
    private MessageBuffer _sending = new();
    private TaskCompletionSource? _room;
    private Stream? _stream;
    private CancellationToken _streamCancellation;
    private Task _flushing = Task.CompletedTask;
    private int _lentThread;
    private bool _isSending;
    private bool _hasSent;
    private volatile bool _isComplete;
    private volatile bool _isClosed;

    public RequestStreamContent(int messageBytesMax)
    {
        _messageBytesMax = messageBytesMax;
        Headers.TryAddWithoutValidation("Content-Type", "application/grpc");
    }

    /// <summary>Writes a message; returns false if the call has ended.</summary>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public bool TryWrite<T>(T message, Marshaller<T> marshaller, bool moreFollows, out Task accepted)
    {
        accepted = Task.CompletedTask;
        if (_isComplete)
            throw new InvalidOperationException("The request stream was completed.");
        if (_isClosed)
            return false;
        if (_lentThread == Environment.CurrentManagedThreadId && _filling.Count < BufferedBytesMax)
        {
            WriteFrame(message, marshaller);
            return true;
        }
        var startsSending = false;
        lock (_gate)
        {
            if (_isClosed)
                return false;
            _lentThread = 0;
            WriteFrame(message, marshaller);
            if (_filling.Count >= BufferedBytesMax)
                accepted = (_room ??= new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously)).Task;
            else if (moreFollows)
                return true;
            startsSending = TryStartLocked();
        }
        if (startsSending)
            _ = SendOnAsync();
        return true;
    }

    /// <summary>Ends the messages.</summary>
    public void Complete()
    {
        bool startsSending;
        lock (_gate)
        {
            _isComplete = true;
            _lentThread = 0;
            startsSending = TryStartLocked();
        }
        if (startsSending)
            _ = SendOnAsync();
    }

    /// <summary>Sends nothing more, because the call has ended.</summary>
    public void Close()
    {
        StopTaking();
        _sent.TrySetCanceled();
    }

    /// <summary>Lends this thread to the caller until <see cref="TakeBack"/>, unless another thread is still lent, which may be writing.</summary>
    public void Lend()
    {
        lock (_gate)
        {
            // After the last message there is nothing to hold back, and nothing would complete the request when the thread is returned.
            if (_lentThread == 0 && !_isComplete)
                _lentThread = Environment.CurrentManagedThreadId;
        }
    }

    /// <summary>Takes back the thread from the caller and sends what it wrote.</summary>
    public void TakeBack()
    {
        bool startsSending;
        lock (_gate)
        {
            if (_lentThread != Environment.CurrentManagedThreadId)
                return;
            _lentThread = 0;
            startsSending = _filling.Count > 0 && TryStartLocked();
        }
        if (startsSending)
            _ = SendOnAsync();
    }

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context) => SerializeToStreamAsync(stream, context, CancellationToken.None);

    protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context, CancellationToken cancellationToken)
    {
        lock (_gate)
        {
            if (_hasSent)
                throw new IOException("The connection was lost, and the messages sent cannot be sent again on another.");
            _stream = stream;
            _streamCancellation = cancellationToken;
            _isSending = true;
        }
        _ = SendOnAsync();
        return _sent.Task;
    }

    protected override bool TryComputeLength(out long length)
    {
        length = 0;
        return false;
    }

    private void WriteFrame<T>(T message, Marshaller<T> marshaller)
    {
        var before = _filling.Count;
        try
        {
            _frames.Write(_filling, message, marshaller, _messageBytesMax);
        }
        catch
        {
            _filling.Truncate(before);
            throw;
        }
    }

    private bool TryStartLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_isSending || _stream is null || _isClosed)
            return false;
        return _isSending = true;
    }

    // Sends until nothing is left. A failure is reported to HttpClient through _sent, except a cancellation: HttpClient cancels the sending when the response
    // ended or was reset, and then the response says how.
    private async Task SendOnAsync()
    {
        try
        {
            if (!_hasSent)
                await _stream!.FlushAsync(_streamCancellation).ConfigureAwait(false); // Sends the headers without waiting for a message.
            while (TryTakeFilled())
            {
                await _flushing.ConfigureAwait(false);
                await _stream!.WriteAsync(_sending.Written, _streamCancellation).ConfigureAwait(false);
                _sending.Clear();
                // Only the next write awaits it. HttpClient has the bytes, and to be notified that they were sent would cost a work item.
                _flushing = _stream.FlushAsync(CancellationToken.None);
            }
        }
        catch (OperationCanceledException)
        {
            StopTaking();
        }
        catch (Exception failure)
        {
            _sent.TrySetException(failure);
            StopTaking();
        }
    }

    private void StopTaking()
    {
        TaskCompletionSource? room;
        lock (_gate)
        {
            _isClosed = true;
            room = _room;
            _room = null;
        }
        room?.TrySetResult();
    }

    private bool TryTakeFilled()
    {
        TaskCompletionSource? room;
        lock (_gate)
        {
            if (_isClosed)
                return false;
            if (_lentThread != 0)
                return _isSending = false; // Continues when the thread is returned.
            if (_filling.Count == 0)
            {
                _isSending = false;
                if (_isComplete)
                    _sent.TrySetResult();
                return false;
            }
            _hasSent = true;
            (_filling, _sending) = (_sending, _filling);
            room = _room;
            _room = null;
        }
        room?.TrySetResult();
        return true;
    }
}
