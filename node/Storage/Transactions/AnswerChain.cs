using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Passes answered requests to the completions executor, several per work item, so that a batch of hundreds costs the writer a few posts and no
/// allocation. When an answer may leave, and in which order, is decided before, by <see cref="PendingAnswers"/>. Writer executor.
/// </summary>
internal sealed class AnswerChain(ISerialExecutor? completions)
{
    /// <summary>Small enough that one slow continuation delays only a few others.</summary>
    private const int RequestsPerItem = 16;

    private WriteRequest? _head;
    private WriteRequest? _tail;
    private int _count;

    /// <summary>Adds a request whose <see cref="WriteRequest.Result"/> is final.</summary>
    public void Add(WriteRequest request)
    {
        request.NextAnswer = null;
        if (request.IsAwaitedByThread)
        {
            // Sets an event, and runs nothing of the caller's.
            request.Execute();
            return;
        }
        if (_tail is null)
            _head = request;
        else
            _tail.NextAnswer = request;
        _tail = request;
        if (++_count == RequestsPerItem)
            Flush();
    }

    /// <summary>Adds a request with this answer.</summary>
    public void Add(WriteRequest request, in WriteResult result)
    {
        request.Result = result;
        Add(request);
    }

    /// <summary>Posts the added requests, whose continuations then run.</summary>
    public void Flush()
    {
        if (_head is not { } head)
            return;
        (_head, _tail, _count) = (null, null, 0);
        if (completions is not null)
            completions.Post(head);
        else
            ThreadPool.UnsafeQueueUserWorkItem(head, preferLocal: false);
    }
}
