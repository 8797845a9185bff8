// Writes the messages of a response into Kestrel's pipe. A flush costs more than a message, so streams flush as rarely as possible without a noticeable
// delay:
//  - While a handler runs on a thread lent to it (at its start, or after a message that it waited for), its writes are flushed when it returns the thread,
//    that is, when it awaits something that is not complete. A handler that blocks its thread delays what it wrote.
//  - Otherwise a flush is queued to the pool; what is written until it runs is flushed with it.
//  - From StagedFrames.BytesMax on a write flushes at once, and waits if the caller does not keep up.
//  - A large message that is encoded already is written in pieces, each when the caller has read those before. As a whole it would be a copy in the pipe of
//    each stream that is not read, which no budget counts.
// Pooled with its call. Everything takes _gate unless it says otherwise.
using System.Buffers;
using System.IO.Pipelines;
using Grpc.Core;
using Grpc.Shared;
using KvCluster;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Writes messages and decides when they are flushed.</summary>
internal sealed class ResponseOutput(ServerCall call) : IThreadPoolWorkItem
{
    /// <summary>An encoded message of more bytes is written in pieces. For smaller ones, such as most pages, a copy costs less than the waits.</summary>
    private const int WholeBytesMax = 256 * 1024;

    /// <summary>The bytes of a piece: what a stream that is not read has in the pipe.</summary>
    private const int PieceBytes = 64 * 1024;

    private readonly Lock _gate = new();
    private readonly FrameWriter _frames = new();
    private readonly StagedFrames _staged = new();
    private PipeWriter? _pipe;
    private int _lentThread;
    private int _lending;
    private bool _isFlushQueued;
    private bool _isOpen;
    private bool _isCallerGone;
    private Task? _flushing;

    /// <summary>Whether the response is a stream that can be written to.</summary>
    public bool IsOpen => _isOpen;

    /// <summary>Whether a message or the headers have been written. Read by the call's own thread.</summary>
    public bool HasContent { get; private set; }

    /// <summary>Whether serialization failed in the middle of a frame. The stream can then only be reset.</summary>
    public bool LeftPartialFrame => HasContent && _frames.LeftPartialFrame;

    public void Begin(IHttpResponseBodyFeature body)
    {
        lock (_gate)
        {
            _pipe = body.Writer;
            _staged.Begin(_pipe);
            _isOpen = true;
            _isCallerGone = false;
            HasContent = false;
        }
    }

    /// <summary>Forgets the call, also one whose response was not a stream.</summary>
    public void End()
    {
        if (_pipe is null)
            return;
        lock (_gate)
        {
            _isOpen = false;
            _isFlushQueued = false;
            _lentThread = 0;
            _lending++;
            _pipe = null;
            _staged.End();
            HasContent = false;
        }
    }

    /// <summary>Starts a handler on this thread, which is lent to it.</summary>
    public Task Start(Func<Task> handler)
    {
        var lending = Lend();
        try
        {
            return handler();
        }
        finally
        {
            TakeBack(lending);
        }
    }

    /// <summary>Lends this thread to the handler from here on.</summary>
    /// <returns>For <see cref="TakeBack"/>, because before it is called the handler may end and this object serve another call.</returns>
    public int Lend()
    {
        lock (_gate)
        {
            _lentThread = Environment.CurrentManagedThreadId;
            return _lending;
        }
    }

    /// <summary>Takes back the thread from the handler and flushes what it wrote.</summary>
    public void TakeBack(int lending)
    {
        lock (_gate)
        {
            if (_lending != lending)
                return;
            _lentThread = 0;
            if (!_staged.IsEmpty && !_isFlushQueued)
                FlushLocked();
        }
    }

    /// <summary>Writes one of many messages, which is sent soon.</summary>
    /// <exception cref="RpcException">The caller went away, or the message is larger than the limit.</exception>
    /// <exception cref="InvalidOperationException">The call has ended.</exception>
    public Task WriteAsync<T>(T message, Marshaller<T> marshaller, bool moreFollows)
    {
        lock (_gate)
        {
            if (!_isOpen)
                throw new InvalidOperationException("The call has ended.");
            call.ThrowIfPastDeadline();
            if (_isCallerGone)
                throw ServerCall.Gone(null);
            if (_flushing is not null)
                return WriteAfterAsync(_flushing, message, marshaller, moreFollows);
            if (message is IEncodedMessage { Memory.Length: > WholeBytesMax } encoded)
                return WriteInPiecesLocked(encoded);
            WriteLocked(message, marshaller);
            if (_staged.MustFlush)
                return FlushLocked();
            if (!moreFollows && !_isFlushQueued && _lentThread != Environment.CurrentManagedThreadId)
            {
                _isFlushQueued = true;
                ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
            }
            return Task.CompletedTask;
        }
    }

    /// <summary>Sends the headers alone, before the first message.</summary>
    public Task SendHeadersAsync()
    {
        lock (_gate)
        {
            HasContent = true;
            return FlushLocked();
        }
    }

    /// <summary>Ends the messages. Completes when no flush is in progress any more; what is not flushed is sent with the trailers.</summary>
    public Task CompleteAsync()
    {
        lock (_gate)
        {
            _isOpen = false;
            _isFlushQueued = false;
            _staged.MoveToPipe();
            return _flushing ?? Task.CompletedTask;
        }
    }

    void IThreadPoolWorkItem.Execute()
    {
        lock (_gate)
        {
            // A flush that was queued for a call that has ended, or that was already done.
            if (!_isFlushQueued)
                return;
            _isFlushQueued = false;
            if (!_staged.IsEmpty)
                FlushLocked();
        }
    }

    private void WriteLocked<T>(T message, Marshaller<T> marshaller)
    {
        Invariant.CheckHeld(_gate);
        try
        {
            _frames.Write(_staged, message, marshaller, call.Settings.ResponseBytesMax);
        }
        finally
        {
            HasContent |= _frames.HasWritten;
        }
    }

    private Task WriteInPiecesLocked(IEncodedMessage message)
    {
        Invariant.CheckHeld(_gate);
        _frames.Begin(_staged, message.Memory.Length, call.Settings.ResponseBytesMax);
        HasContent = true;
        var writing = SendPiecesAsync(_pipe!, message);
        // As in FlushLocked. Until it is complete, other writes wait for it, and nobody else uses the pipe.
        if (!writing.IsCompleted)
            _flushing = writing;
        return writing;
    }

    // Begins under the gate. Never fails, as AwaitFlushAsync. It goes on after the call has ended, so that a caller that reads late gets the rest and the status.
    private async Task SendPiecesAsync(PipeWriter pipe, IEncodedMessage message)
    {
        var (left, isGone) = (message.Memory, false);
        try
        {
            _staged.MoveToPipe();
            while (!isGone && !left.IsEmpty)
            {
                var piece = left[..Math.Min(left.Length, PieceBytes)];
                pipe.Write(piece.Span);
                left = left[piece.Length..];
                isGone = IsGone(await pipe.FlushAsync().ConfigureAwait(false));
            }
        }
        catch (Exception failure) when (failure is IOException or OperationCanceledException or ObjectDisposedException)
        {
            CallLog.FlushFailed(call.Settings.Log, failure);
            isGone = true;
        }
        finally
        {
            message.Return();
        }
        lock (_gate)
        {
            if (left.IsEmpty)
                _frames.End();
            _isCallerGone |= isGone;
            _flushing = null;
        }
    }

    // While a flush waits for the caller to read, Kestrel sends nothing that is written, so nothing is written. A flush that another thread started, and that
    // the writer does not await, is awaited here.
    private async Task WriteAfterAsync<T>(Task flushing, T message, Marshaller<T> marshaller, bool moreFollows)
    {
        await flushing.ConfigureAwait(false);
        await WriteAsync(message, marshaller, moreFollows).ConfigureAwait(false);
    }

    private Task FlushLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_flushing is not null)
            return _flushing;
        ValueTask<FlushResult> flush;
        try
        {
            _staged.MoveToPipe();
            flush = _pipe!.FlushAsync();
        }
        catch (ObjectDisposedException failure)
        {
            // A server that stops waits for its calls for a time only, and then releases the memory of their connections. A queued flush is on a thread of
            // the pool, where an exception would end the process.
            CallLog.FlushFailed(call.Settings.Log, failure);
            _isCallerGone = true;
            return Task.CompletedTask;
        }
        if (flush.IsCompletedSuccessfully)
        {
            _isCallerGone |= IsGone(flush.Result);
            return Task.CompletedTask;
        }
        var flushing = AwaitFlushAsync(flush);
        // It may be complete already. Otherwise it needs the gate to report that, which it gets after this.
        if (!flushing.IsCompleted)
            _flushing = flushing;
        return flushing;
    }

    // Never fails. A failure means that the caller is gone, which the next write reports.
    private async Task AwaitFlushAsync(ValueTask<FlushResult> flush)
    {
        var isGone = true;
        try
        {
            isGone = IsGone(await flush.ConfigureAwait(false));
        }
        catch (Exception failure) when (failure is IOException or OperationCanceledException or ObjectDisposedException)
        {
            CallLog.FlushFailed(call.Settings.Log, failure);
        }
        lock (_gate)
        {
            _isCallerGone |= isGone;
            _flushing = null;
        }
    }

    private static bool IsGone(FlushResult result) => result.IsCompleted || result.IsCanceled;
}

/// <summary>The stream to which a handler writes its responses.</summary>
internal sealed class ResponseStreamWriter<T>(ServerCall call, Marshaller<T> marshaller) : IServerStreamWriter<T>
{
    public WriteOptions? WriteOptions { get; set; }

    public Task WriteAsync(T message)
    {
        var options = WriteOptions ?? call.WriteOptions;
        return call.Responses.WriteAsync(message, marshaller, moreFollows: options is not null && (options.Flags & WriteFlags.BufferHint) != 0);
    }

    public Task WriteAsync(T message, CancellationToken cancellationToken) =>
        cancellationToken.IsCancellationRequested ? Task.FromCanceled(cancellationToken) : WriteAsync(message);
}
