// The messages of a response on their way into Kestrel's pipe. A flush costs more than a message, so streams flush as rarely as
// nobody notices:
//  - While a handler runs on a thread that this stack lent it (its start, or a message that it waited for), what it writes is
//    flushed when it gives the thread back, that is, when it awaits something that is not there yet. A handler that blocks its
//    thread holds back what it wrote.
//  - Elsewhere a flush is queued to the pool; what is written until it runs goes with it.
//  - From StagedFrames.BytesMax on a write flushes at once, and waits where the caller does not keep up.
// Pooled with its call. Everything takes _gate but what says otherwise.
using System.IO.Pipelines;
using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Writes messages and decides when they are flushed.</summary>
internal sealed class ResponseOutput(ServerCall call) : IThreadPoolWorkItem
{
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

    /// <summary>Whether a message, or the headers, are on their way. Read by the call's own thread.</summary>
    public bool HasContent { get; private set; }

    /// <summary>Whether serialization failed in the middle of a frame, after which only a reset is left.</summary>
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

    /// <summary>Forgets the call; also one whose responses were no stream.</summary>
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

    /// <summary>Starts a handler on this thread, on loan.</summary>
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

    /// <summary>From here on this thread runs the handler.</summary>
    /// <returns>For <see cref="TakeBack"/>: the handler may end, and this object serve another call, before.</returns>
    public int Lend()
    {
        lock (_gate)
        {
            _lentThread = Environment.CurrentManagedThreadId;
            return _lending;
        }
    }

    /// <summary>The handler gave this thread back: flushes what it wrote.</summary>
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

    /// <summary>One of many messages; sent soon.</summary>
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

    /// <summary>No more messages. Completes when no flush is under way any more; what is not flushed is sent with the trailers.</summary>
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
            // A flush that was queued for a call that has ended, or that another item did already.
            if (!_isFlushQueued)
                return;
            _isFlushQueued = false;
            if (!_staged.IsEmpty)
                FlushLocked();
        }
    }

    private void WriteLocked<T>(T message, Marshaller<T> marshaller)
    {
        try
        {
            _frames.Write(_staged, message, marshaller, call.Settings.ResponseBytesMax);
        }
        finally
        {
            HasContent |= _frames.HasWritten;
        }
    }

    // Kestrel sends nothing of what is written while a flush waits for its caller: nothing is. A flush that the writer does not wait
    // for, because another thread began it, is waited for here.
    private async Task WriteAfterAsync<T>(Task flushing, T message, Marshaller<T> marshaller, bool moreFollows)
    {
        await flushing.ConfigureAwait(false);
        await WriteAsync(message, marshaller, moreFollows).ConfigureAwait(false);
    }

    private Task FlushLocked()
    {
        if (_flushing is not null)
            return _flushing;
        _staged.MoveToPipe();
        var flush = _pipe!.FlushAsync();
        if (flush.IsCompletedSuccessfully)
        {
            _isCallerGone |= IsGone(flush.Result);
            return Task.CompletedTask;
        }
        var flushing = AwaitFlushAsync(flush);
        // It may be done already; otherwise it needs the gate to say so, after this.
        if (!flushing.IsCompleted)
            _flushing = flushing;
        return flushing;
    }

    // Never fails: a failure is that the caller is gone, which the next write says.
    private async Task AwaitFlushAsync(ValueTask<FlushResult> flush)
    {
        var isGone = true;
        try
        {
            isGone = IsGone(await flush.ConfigureAwait(false));
        }
        catch (Exception failure) when (failure is IOException or OperationCanceledException)
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
