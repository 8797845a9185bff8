using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Passes answered requests to the completions executor, several per work item, so that a batch of hundreds costs the writer a few posts and no
/// allocation. When an answer may leave, and in which order, is decided before, by <see cref="PendingAnswers"/>. Writer executor.
/// </summary>
internal sealed class AnswerChain
{
    /// <summary>Small enough that one slow continuation delays only a few others.</summary>
    private const int RequestsPerItem = 16;

    /// <summary>
    /// So few answers of a record cost less than the item in which they are passed on, and the message in which their caller gets them. They may wait for those
    /// of other shards.
    /// </summary>
    internal const int FewMax = 4;

    private readonly ISerialExecutor? _completions;
    private readonly HeldPosts? _posts;
    private readonly Func<IWorkItem?> _take;
    private WriteRequest? _head;
    private WriteRequest? _tail;
    private int _count;
    private bool _isRest;

    /// <summary>Passes on nothing yet.</summary>
    /// <param name="completions">Runs the continuations; null: the thread pool.</param>
    /// <param name="posts">Holds few answers until the end of the writer's pass; null: none are held.</param>
    public AnswerChain(ISerialExecutor? completions, HeldPosts? posts = null)
    {
        (_completions, _posts) = (completions, posts);
        _take = Take;
    }

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
        if (++_count < RequestsPerItem)
            return;
        Flush();
        _isRest = true;
    }

    /// <summary>Adds a request with this answer.</summary>
    public void Add(WriteRequest request, in WriteResult result)
    {
        request.Result = result;
        Add(request);
    }

    /// <summary>Posts the added requests, whose continuations then run.</summary>
    /// <param name="mayWait">Whether they may wait for the end of the writer executor's pass if they are few.</param>
    public void Flush(bool mayWait = false)
    {
        var isRest = _isRest;
        _isRest = false;
        if (mayWait && _posts is not null && !isRest && _count is > 0 and <= FewMax)
            _posts.Hold(_take);
        else if (Take() is not { } head)
            return;
        else if (_completions is not null)
            _completions.Post(head);
        else
            ThreadPool.UnsafeQueueUserWorkItem(head, preferLocal: false);
    }

    private WriteRequest? Take()
    {
        var head = _head;
        (_head, _tail, _count) = (null, null, 0);
        return head;
    }
}
