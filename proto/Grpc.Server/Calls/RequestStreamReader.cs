// The messages that a caller streams, parsed in place in Kestrel's pipe. The result of one read is held and split into frames, and returned when no whole
// frame is left in it. One reader at a time, as gRPC requires.
using System.Buffers;
using System.IO.Pipelines;
using System.Runtime.CompilerServices;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The stream from which a handler reads its requests.</summary>
internal sealed class RequestStreamReader<T> : IAsyncStreamReader<T>
    where T : class
{
    private static readonly Task<bool> Found = Task.FromResult(true);
    private static readonly Task<bool> Ended = Task.FromResult(false);

    private readonly ServerCall _call;
    private readonly RequestInput _requests;
    private readonly Marshaller<T> _marshaller;
    private readonly PipeReader _body;
    private readonly Action _resume;
    private ReadOnlySequence<byte> _held;
    private ReadOnlyMemory<byte> _segment; // The first segment of _held, of which _taken bytes were consumed.
    private int _taken;
    private bool _isHolding;
    private bool _isLast;
    private ConfiguredValueTaskAwaitable<ReadResult>.ConfiguredValueTaskAwaiter _read;
    private TaskCompletionSource<bool>? _waiter;
    private CancellationToken _waitToken;
    private CancellationTokenRegistration _waitRegistration;

    public RequestStreamReader(ServerCall call, Marshaller<T> marshaller)
    {
        _call = call;
        _requests = call.Requests;
        _marshaller = marshaller;
        _body = call.Requests.Body;
        _resume = Resume;
    }

    public T Current { get; private set; } = null!;

    public Task<bool> MoveNext(CancellationToken cancellationToken)
    {
        if (_waiter is not null)
            throw new InvalidOperationException("The stream is already being read.");
        if (cancellationToken.IsCancellationRequested)
            return Task.FromCanceled<bool>(cancellationToken);
        try
        {
            _requests.Release();
            // Data that is held, or read already, needs no wait.
            if (TryTake(out var isFound))
                return isFound ? Found : Ended;
            _waitToken = cancellationToken;
            return Wait();
        }
        catch (Exception failure) when (failure is RpcException or IOException or OperationCanceledException)
        {
            return Task.FromException<bool>(AsStatus(failure));
        }
    }

    private Task<bool> Wait()
    {
        if (!TryStartRead(out var isFound))
        {
            var waiter = _waiter = new TaskCompletionSource<bool>();
            if (_waitToken.CanBeCanceled && !_call.IsOwn(_waitToken))
                _waitRegistration = _waitToken.UnsafeRegister(static body => CancelRead((PipeReader)body!), _body);
            _read.UnsafeOnCompleted(_resume);
            return waiter.Task;
        }
        return isFound ? Found : Ended;
    }

    private static void CancelRead(PipeReader body)
    {
        try
        {
            body.CancelPendingRead();
        }
        catch (IOException)
        {
            // The connection broke, which is often why the token was cancelled. The read then ends with that by itself.
            return;
        }
    }

    // Reads until there is a message or the end (returns true), or a read that has to be awaited (returns false).
    private bool TryStartRead(out bool isFound)
    {
        while (true)
        {
            _read = _body.ReadAsync(CancellationToken.None).ConfigureAwait(false).GetAwaiter();
            if (!_read.IsCompleted)
            {
                isFound = false;
                return false;
            }
            Hold(_read.GetResult());
            if (TryTake(out isFound))
                return true;
        }
    }

    // Called by the pipe, on a thread of the pool, when an awaited read is complete.
    private void Resume()
    {
        var isFound = false;
        Exception? failure = null;
        try
        {
            Hold(_read.GetResult());
            if (!TryTake(out isFound) && !TryStartRead(out isFound))
            {
                _read.UnsafeOnCompleted(_resume);
                return;
            }
        }
        catch (Exception caught)
        {
            failure = AsStatus(caught);
        }
        var waiter = _waiter!;
        _waitRegistration.Dispose();
        _waitRegistration = default;
        _waiter = null;
        // The handler continues inside SetResult and returns when it waits again.
        var responses = _call.Responses;
        var lending = responses.Lend();
        if (failure is null)
            waiter.SetResult(isFound);
        else
            waiter.SetException(failure);
        responses.TakeBack(lending);
    }

    private void Hold(ReadResult result)
    {
        HoldRest(result.Buffer);
        _isHolding = true;
        _isLast = result.IsCompleted;
        if (result.IsCanceled)
        {
            _isLast = false;
            Release();
            _waitToken.ThrowIfCancellationRequested();
            _call.ThrowIfPastDeadline();
        }
    }

    // Returns what is not a whole frame, to be read again with more data after it.
    private void Release()
    {
        _requests.Hold(_held.Length - _taken);
        _isHolding = false;
        _body.AdvanceTo(_held.GetPosition(_taken), _held.End);
        HoldRest(default);
    }

    private void HoldRest(ReadOnlySequence<byte> rest)
    {
        _held = rest;
        _segment = rest.First;
        _taken = 0;
    }

    private bool TryTake(out bool isFound)
    {
        isFound = false;
        while (true)
        {
            if (!_isHolding)
            {
                if (_isLast)
                    return true;
                if (!_body.TryRead(out var result))
                    return false;
                Hold(result);
                if (!_isHolding)
                    continue;
            }
            if (TryTakeFrame(out var payload, out var isCompressed))
            {
                Current = _requests.Deserialize(payload, isCompressed, _marshaller, out var countedBytes);
                // Until the next message is requested, because the handler has finished with this one then.
                _requests.Keep(countedBytes);
                isFound = true;
                return true;
            }
            if (_isLast && !_held.IsEmpty)
                throw new RpcException(new Status(StatusCode.Internal, "The request ended in the middle of a message."));
            Release();
        }
    }

    private bool TryTakeFrame(out ReadOnlySequence<byte> payload, out bool isCompressed)
    {
        var bytesMax = _requests.BytesMax;
        var rest = _segment.Span[_taken..];
        if (rest.Length >= FrameFormat.HeaderBytes)
        {
            // Most frames are in one segment, so no sequence has to be sliced.
            var payloadBytes = FrameFormat.ReadHeader(rest, bytesMax, out isCompressed);
            if (rest.Length - FrameFormat.HeaderBytes >= payloadBytes)
            {
                payload = new ReadOnlySequence<byte>(_segment.Slice(_taken + FrameFormat.HeaderBytes, payloadBytes));
                _taken += FrameFormat.HeaderBytes + payloadBytes;
                return true;
            }
        }
        var held = _held.Slice(_taken);
        var isWhole = FrameFormat.TryRead(ref held, bytesMax, out isCompressed, out payload);
        HoldRest(held);
        return isWhole;
    }

    private static Exception AsStatus(Exception failure) => failure is IOException ? ServerCall.Gone(failure) : failure;
}
