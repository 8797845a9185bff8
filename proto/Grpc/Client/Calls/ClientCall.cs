// Common to all calls of a channel: the request, cancellation and deadline, and the end of the call. A call ends once, by whatever comes first: its status
// arrives, it fails, its deadline passes, or its caller cancels or disposes it. Any thread. It locks itself, because nothing outside this stack sees it, and
// a separate lock would be one more object per call.
using System.Buffers;
using Grpc.Core;
using Grpc.Shared;
using KvCluster;

namespace Grpc.Net.Client.Calls;

/// <summary>One call over HTTP/2.</summary>
internal abstract class ClientCall : ICallState
{
    /// <summary>The longest time that a timer can wait. Later deadlines are sent to the server but have no effect here.</summary>
    private static readonly TimeSpan WaitMax = TimeSpan.FromMilliseconds(uint.MaxValue - 2);

    private readonly CancellationTokenRegistration _callerRegistration;
    private CancellationTokenSource? _cancellation;
    private bool _isCancelledHere;
    private HttpResponseMessage? _response;
    private TaskCompletionSource<Metadata>? _headersWaiter;
    private Task<Metadata>? _headers;
    private Status? _ended;

    /// <param name="cancellation">Not cancelled yet; not disposed by the call.</param>
    protected ClientCall(GrpcChannel channel, CallOptions options, CancellationTokenSource cancellation)
    {
        Channel = channel;
        Options = options;
        _cancellation = cancellation;
        Cancellation = cancellation.Token;
        if (options.Deadline is { } deadline)
            ArmDeadline(cancellation, deadline);
        if (options.CancellationToken.CanBeCanceled)
            _callerRegistration = options.CancellationToken.UnsafeRegister(static call => ((ClientCall)call!).Cancel(), this);
    }

    public Task<Metadata> ResponseHeadersAsync
    {
        get
        {
            lock (this)
                return _headers ??= CurrentHeadersLocked();
        }
    }

    protected GrpcChannel Channel { get; }

    protected CallOptions Options { get; }

    /// <summary>Cancelled when the call is to end from this side.</summary>
    protected CancellationToken Cancellation { get; }

    /// <summary>The status that the call ended with; null if it has not ended.</summary>
    protected Status? Ended
    {
        get
        {
            lock (this)
                return _ended;
        }
    }

    public Status GetStatus() => Ended ?? throw new InvalidOperationException("The call has not ended.");

    public Metadata GetTrailers()
    {
        lock (this)
        {
            if (_ended is null)
                throw new InvalidOperationException("The call has not ended.");
            return TrailersLocked();
        }
    }

    /// <summary>Cancels the call unless it has ended.</summary>
    public void Dispose()
    {
        if (Ended is not null)
            return;
        Cancel();
        End(new Status(StatusCode.Cancelled, "The call was disposed."), isInOrder: false);
    }

    /// <summary>Processes the response's headers.</summary>
    /// <exception cref="RpcException">By the headers the call ended with a status other than OK.</exception>
    /// <returns>Whether messages may follow; false if the call ended with OK.</returns>
    protected bool TakeHeaders(HttpResponseMessage response)
    {
        TaskCompletionSource<Metadata>? waiter;
        lock (this)
        {
            _response = response;
            waiter = _headersWaiter;
        }
        waiter?.TrySetResult(ResponseStatus.ToMetadata(response.Headers));
        if (ResponseStatus.OfHeaders(response) is { } status)
        {
            EndInOrder(status);
            return false;
        }
        return true;
    }

    /// <summary>Decompresses a message that the server compressed.</summary>
    protected ReadOnlySequence<byte> Decompress(ReadOnlySequence<byte> payload)
    {
        var encoding = _response!.Headers.NonValidated.TryGetValues("grpc-encoding", out var name) ? name.ToString() : null;
        return Decompression.Decompress(payload, encoding, Channel.ResponseBytesMax, hold: null).Bytes;
    }

    /// <summary>Processes the trailers after the response's messages have been read.</summary>
    /// <exception cref="RpcException">They have a status other than OK.</exception>
    protected void TakeTrailers() => EndInOrder(ResponseStatus.OfTrailers(_response!));

    /// <summary>Ends the call because it failed on this side or below gRPC.</summary>
    /// <returns>The exception for its caller.</returns>
    protected RpcException Fail(Exception failure)
    {
        End(StatusOf(failure), isInOrder: false);
        return EndedException();
    }

    /// <summary>The end of the call as an exception.</summary>
    protected RpcException EndedException()
    {
        lock (this)
            return new RpcException(_ended!.Value, TrailersLocked());
    }

    /// <summary>Ends the call from this side; everything that waits for it fails.</summary>
    protected void Cancel()
    {
        CancellationTokenSource? cancellation;
        lock (this)
        {
            _isCancelledHere = true;
            cancellation = _cancellation;
            _cancellation = null;
        }
        cancellation?.Cancel();
    }

    /// <summary>Called once, when the call has ended; its state can be read.</summary>
    /// <param name="isInOrder">The whole response was read, so HttpClient does not use anything of it any more.</param>
    /// <param name="isCancelled">Another thread may be cancelling the cancellation source.</param>
    protected abstract void OnEnded(bool isInOrder, bool isCancelled);

    private static void ArmDeadline(CancellationTokenSource cancellation, DateTime deadline)
    {
        var remaining = deadline.ToUniversalTime() - DateTime.UtcNow;
        if (remaining <= TimeSpan.Zero)
            cancellation.Cancel();
        else if (remaining < WaitMax)
            cancellation.CancelAfter(remaining);
    }

    private void EndInOrder(Status status)
    {
        if (!End(status, isInOrder: true) || status.StatusCode != StatusCode.OK)
            throw EndedException();
    }

    // Returns whether this ended the call.
    private bool End(Status status, bool isInOrder)
    {
        CancellationTokenSource? cancellation;
        TaskCompletionSource<Metadata>? waiter;
        lock (this)
        {
            if (_ended is not null)
                return false;
            _ended = status;
            cancellation = _cancellation;
            _cancellation = null;
            waiter = _headersWaiter;
        }
        // Waits for a callback in progress. After this nobody cancels the source any more.
        _callerRegistration.Dispose();
        if (Options.Deadline is not null)
            cancellation?.CancelAfter(Timeout.InfiniteTimeSpan);
        // Resets the stream of a response that was not read to its end. A response that was read to its end is spared its finalizer, which costs more than
        // the call. Headers and trailers can still be read.
        _response?.Dispose();
        OnEnded(isInOrder, isCancelled: cancellation is null);
        if (waiter is not null && waiter.TrySetException(new RpcException(status)))
            _ = waiter.Task.Exception;
        return true;
    }

    private Status StatusOf(Exception failure)
    {
        if (failure is RpcException rpc)
            return rpc.Status;
        if (Options.CancellationToken.IsCancellationRequested || _isCancelledHere)
            return new Status(StatusCode.Cancelled, "The call was cancelled by its caller.", failure);
        if (Options.Deadline is { } deadline && (Cancellation.IsCancellationRequested || deadline.ToUniversalTime() <= DateTime.UtcNow))
            return new Status(StatusCode.DeadlineExceeded, "The deadline passed.", failure);
        return StatusMapping.FromException(failure);
    }

    private Task<Metadata> CurrentHeadersLocked()
    {
        Invariant.CheckHeld(this);
        if (_response is not null)
            return Task.FromResult(ResponseStatus.ToMetadata(_response.Headers));
        if (_ended is { } status)
            return Task.FromException<Metadata>(new RpcException(status));
        _headersWaiter = new TaskCompletionSource<Metadata>(TaskCreationOptions.RunContinuationsAsynchronously);
        return _headersWaiter.Task;
    }

    // A response without messages has its trailers in its headers.
    private Metadata TrailersLocked()
    {
        Invariant.CheckHeld(this);
        if (_response is null)
            return Metadata.Empty;
        return ResponseStatus.ToMetadata(_response.Headers.NonValidated.Contains("grpc-status") ? _response.Headers : _response.TrailingHeaders);
    }
}
