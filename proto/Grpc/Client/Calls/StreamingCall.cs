// A call with a stream in at least one direction, and both of its ends: the caller writes requests to it and reads responses from it. One writer and one
// reader at a time, which may be on different threads.
using System.Runtime.CompilerServices;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>A call that streams.</summary>
internal sealed class StreamingCall<TRequest, TResponse> : ClientCall, IAsyncStreamReader<TResponse>, IClientStreamWriter<TRequest>
    where TRequest : class
    where TResponse : class
{
    private const int ReadBytes = 32 * 1024;

    private static readonly Task<bool> Found = Task.FromResult(true);
    private static readonly Task<bool> AtEnd = Task.FromResult(false);

    private readonly Method<TRequest, TResponse> _method;
    private readonly CancellationTokenRegistration _channelRegistration;
    private readonly FramePayload _payload = new();
    private readonly Action _resume;
    private RequestStreamContent? _requests;
    private Task _opening = Task.CompletedTask;
    private readonly ResponseFrames _frames = new();
    private Stream? _responses;
    private ConfiguredValueTaskAwaitable<int>.ConfiguredValueTaskAwaiter _read;
    private TaskCompletionSource<bool>? _waiter;
    private CancellationTokenRegistration _waitRegistration;

    public StreamingCall(GrpcChannel channel, Method<TRequest, TResponse> method, CallOptions options)
        : base(channel, options, new CancellationTokenSource())
    {
        _method = method;
        _resume = Resume;
        WriteOptions = options.WriteOptions;
        _channelRegistration = channel.Disposed.UnsafeRegister(static call => ((StreamingCall<TRequest, TResponse>)call!).Dispose(), this);
    }

    public WriteOptions? WriteOptions { get; set; }

    public TResponse Current { get; private set; } = null!;

    /// <summary>Opens a call whose request is a stream.</summary>
    public void Start()
    {
        _requests = new RequestStreamContent(Channel.RequestBytesMax);
        _opening = OpenAsync(_requests);
    }

    /// <summary>Opens a call with one request message.</summary>
    public void Start(TRequest request)
    {
        var content = new SingleMessageContent();
        try
        {
            content.Write(request, _method.RequestMarshaller, Channel.RequestBytesMax);
        }
        catch (Exception failure)
        {
            Fail(failure);
            return;
        }
        _opening = OpenAsync(content);
    }

    /// <summary>Reads the only response of a call that streams only requests.</summary>
    public async Task<TResponse> ReadOnlyAsync()
    {
        if (!await MoveNext(CancellationToken.None).ConfigureAwait(false))
            throw new RpcException(new Status(StatusCode.Internal, "The call ended with OK but without its message."));
        var response = Current;
        if (await MoveNext(CancellationToken.None).ConfigureAwait(false))
            throw Fail(new RpcException(new Status(StatusCode.Internal, "More data came after the only message of the response.")));
        return response;
    }

    public Task WriteAsync(TRequest message)
    {
        var moreFollows = WriteOptions is { } options && (options.Flags & WriteFlags.BufferHint) != 0;
        if (_requests!.TryWrite(message, _method.RequestMarshaller, moreFollows, out var accepted))
            return accepted;
        return Task.FromException(Ended is { StatusCode: StatusCode.OK } ? new InvalidOperationException("The call has ended.") : EndedOrCancelled());
    }

    public Task WriteAsync(TRequest message, CancellationToken cancellationToken)
    {
        if (cancellationToken.IsCancellationRequested)
            return Task.FromCanceled(cancellationToken);
        var accepted = WriteAsync(message);
        return accepted.IsCompleted || !cancellationToken.CanBeCanceled ? accepted : CancelWithAsync(accepted, cancellationToken);
    }

    public Task CompleteAsync()
    {
        _requests!.Complete();
        return Task.CompletedTask;
    }

    public Task<bool> MoveNext(CancellationToken cancellationToken)
    {
        if (_waiter is not null)
            throw new InvalidOperationException("The stream is already being read.");
        if (cancellationToken.IsCancellationRequested)
            Cancel();
        if (_responses is null)
            return OpenThenMoveNextAsync(cancellationToken);
        try
        {
            return TryTake() ? Found : Wait(cancellationToken);
        }
        catch (Exception failure)
        {
            return Task.FromException<bool>(StopReading(failure));
        }
    }

    protected override void OnEnded(bool isInOrder, bool isCancelled)
    {
        _channelRegistration.Unregister();
        _requests?.Close();
    }

    // Sends the request and waits for the headers. Never fails; a failure ends the call.
    private async Task OpenAsync(HttpContent content)
    {
        try
        {
            var request = RequestMessage.Create(content);
            request.RequestUri = Channel.AddressOf(_method);
            RequestMessage.AddHeaders(request, Options);
            var response = await Channel.Http.SendAsync(request, Cancellation).ConfigureAwait(false);
            if (TakeHeaders(response))
                _responses = response.Content.ReadAsStream(CancellationToken.None);
        }
        catch (Exception failure)
        {
            Fail(failure);
        }
    }

    private async Task<bool> OpenThenMoveNextAsync(CancellationToken cancellationToken)
    {
        using (cancellationToken.UnsafeRegister(static call => ((StreamingCall<TRequest, TResponse>)call!).Cancel(), this))
            await _opening.ConfigureAwait(false);
        if (_responses is not null)
            return await MoveNext(cancellationToken).ConfigureAwait(false);
        return GetStatus().StatusCode == StatusCode.OK ? false : throw EndedException();
    }

    private Task<bool> Wait(CancellationToken cancellationToken)
    {
        if (Ended is { } status)
            return status.StatusCode == StatusCode.OK ? AtEnd : Task.FromException<bool>(StopReading(EndedException()));
        if (TryRead(out var isFound))
            return isFound ? Found : AtEnd;
        var waiter = _waiter = new TaskCompletionSource<bool>();
        if (cancellationToken.CanBeCanceled)
            _waitRegistration = cancellationToken.UnsafeRegister(static call => ((StreamingCall<TRequest, TResponse>)call!).Cancel(), this);
        _read.UnsafeOnCompleted(_resume);
        return waiter.Task;
    }

    // Reads until there is a message or the end (returns true), or a read that has to be awaited (returns false).
    private bool TryRead(out bool isFound)
    {
        while (true)
        {
            _read = _responses!.ReadAsync(_frames.Room(ReadBytes, Channel.ResponseBytesMax), Cancellation).ConfigureAwait(false).GetAwaiter();
            if (!_read.IsCompleted)
            {
                isFound = false;
                return false;
            }
            if (TakeRead(out isFound))
                return true;
        }
    }

    // Called by HttpClient, on a thread of the pool, when an awaited read is complete.
    private void Resume()
    {
        var isFound = false;
        Exception? failure = null;
        try
        {
            if (!TakeRead(out isFound) && !TryRead(out isFound))
            {
                _read.UnsafeOnCompleted(_resume);
                return;
            }
        }
        catch (Exception caught)
        {
            failure = StopReading(caught);
        }
        var waiter = _waiter!;
        _waitRegistration.Dispose();
        _waitRegistration = default;
        _waiter = null;
        // The caller continues inside SetResult and returns when it waits again.
        _requests?.Lend();
        if (failure is null)
            waiter.SetResult(isFound);
        else
            waiter.SetException(failure);
        _requests?.TakeBack();
    }

    private bool TakeRead(out bool isFound)
    {
        var count = _read.GetResult();
        isFound = false;
        if (count == 0)
        {
            TakeEnd();
            return true;
        }
        _frames.Filled(count);
        return isFound = TryTake();
    }

    private bool TryTake()
    {
        if (!_frames.TryTake(Channel.ResponseBytesMax, out var payload, out var isCompressed))
            return false;
        Current = _payload.Read(isCompressed ? Decompress(payload) : payload, _method.ResponseMarshaller);
        _frames.ReleaseLarge();
        return true;
    }

    private void TakeEnd()
    {
        var isCut = !_frames.IsEmpty;
        TakeTrailers();
        if (isCut)
            throw new RpcException(new Status(StatusCode.Internal, "The response ended in the middle of a message."));
        _frames.Clear();
    }

    // No read is in progress, and none will follow.
    private RpcException StopReading(Exception failure)
    {
        _frames.Clear();
        return Ended is null ? Fail(failure) : failure as RpcException ?? EndedException();
    }

    private RpcException EndedOrCancelled() =>
        Ended is null ? new RpcException(new Status(StatusCode.Unavailable, "The request stream is broken.")) : EndedException();

    private async Task CancelWithAsync(Task accepted, CancellationToken cancellationToken)
    {
        using (cancellationToken.UnsafeRegister(static call => ((StreamingCall<TRequest, TResponse>)call!).Cancel(), this))
            await accepted.ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }
}
