using KvCluster.Storage.Files;

namespace KvCluster.Simulation.Cluster;

/// <summary>Events for a node's process and its waits. They are delayed while the process is paused and dropped when it ends.</summary>
internal sealed class NodeEvents(ClusterRun run, ClusterNode node)
{
    /// <summary>Some work items: the time within which a replica that stops reports it.</summary>
    public const long ToldWithinUs = 100_000;

    private readonly List<Func<bool>> _pending = [];
    private List<Action> _whilePaused = [];
    private int _pauses;

    public bool IsPaused => _pauses > 0;

    /// <summary>Acts now, or when a paused process resumes.</summary>
    public void Deliver(Action action)
    {
        if (_pauses > 0)
            _whilePaused.Add(action);
        else
            action();
    }

    /// <summary>Stops the process as SIGSTOP does. Everything that reaches it waits.</summary>
    public void Pause(long forUs)
    {
        run.Trace($"node {node.Id} is stopped for {forUs / 1000} ms");
        _pauses++;
        run.Time.After(forUs, () =>
        {
            _pauses--;
            var waiting = _whilePaused;
            _whilePaused = [];
            foreach (var action in waiting)
                Deliver(action);
        });
    }

    /// <summary>Acts after a while, or never if the process ends before.</summary>
    public void InThisProcess(long afterUs, Action action)
    {
        var process = node.Process;
        run.Time.After(afterUs, () =>
        {
            if (node.IsUp && node.Process == process)
                action();
        });
    }

    /// <summary>Asks now and after each work item until the answer is true or the process ends.</summary>
    public void Until(Func<bool> isDone)
    {
        if (!isDone())
            _pending.Add(isDone);
    }

    /// <summary>Acts when a task has ended, after the work item that ended it, or never if the process ends before.</summary>
    /// <param name="task">The task.</param>
    /// <param name="done">Gets its result.</param>
    public void Poll<T>(Task<T> task, Action<T> done) => Until(() =>
    {
        if (!task.IsCompleted)
            return false;
        if (task.IsCompletedSuccessfully)
            done(task.Result);
        else
            CheckExcused(task.Exception!.InnerException!);
        return true;
    });

    /// <summary>A work item has run.</summary>
    public void Look()
    {
        foreach (var completed in _pending.ToArray())
        {
            if (completed())
                _pending.Remove(completed);
        }
    }

    /// <summary>The process has ended.</summary>
    public void End()
    {
        _pending.Clear();
        _whilePaused.Clear();
    }

    // An answer that is an exception is allowed if the replica stops at once or had stopped before, or if a disk is full. A working replica answers with
    // values.
    private void CheckExcused(Exception error)
    {
        if (error is StorageIoException { IsDiskFull: true })
            return;
        // Looked at with the other waits, and not in a step of its own: this answer may have come from the thread pool, so that one of two runs sees it a poll
        // later.
        var untilUs = run.NowUs + ToldWithinUs;
        Until(() =>
        {
            if (run.NowUs < untilUs)
                return false;
            Violation.Unless(node.Replica?.Failure is not null, Rule.GoesOn, $"a caller of node {node.Id}, whose replica goes on, is answered with {error}");
            return true;
        });
    }
}
