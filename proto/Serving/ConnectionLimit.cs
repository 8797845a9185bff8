// Counts the connections of one listener, on Kestrel's threads. At the limit the oldest connection on which no call ever came makes room for the new one,
// so that thousands of connections that ask for nothing keep nobody out; where all are in use, the new one is closed.
#if GRPC_IN_TREE
using Grpc.AspNetCore.Server.Calls;
using Grpc.AspNetCore.Server.Hosting;
#endif
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.Serving;

/// <summary>Lets so many connections in at a time.</summary>
internal sealed class ConnectionLimit(int connectionsMax)
{
    private readonly Lock _gate = new();
    private readonly LinkedList<Use> _unused = [];
    private int _count;

    /// <summary>Stands before everything else of a listener.</summary>
    public void Guard(ListenOptions listen) => listen.Use(next => connection => RunAsync(next, connection));

    private async Task RunAsync(ConnectionDelegate next, ConnectionContext connection)
    {
        var use = new Use(this, connection);
        if (!TryEnter(use))
        {
            connection.Abort(new ConnectionAbortedException("The server has as many connections as it takes."));
            return;
        }
        try
        {
#if GRPC_IN_TREE
            connection.Features.Set<IConnectionUseFeature>(use);
#endif
            await next(connection).ConfigureAwait(false);
        }
        finally
        {
            Leave(use);
        }
    }

    private bool TryEnter(Use use)
    {
        Use? given;
        lock (_gate)
        {
            given = _count < connectionsMax ? null : _unused.First?.Value;
            if (_count >= connectionsMax && given is null)
                return false;
            // One that is given up counts no more, though it may take some moments to go.
            if (given is not null)
                LeaveLocked(given);
            _count++;
            use.Place = _unused.AddLast(use);
            use.IsCounted = true;
        }
        given?.Connection.Abort(new ConnectionAbortedException("The connection was not used, and the server has as many as it takes."));
        return true;
    }

    private void Leave(Use use)
    {
        lock (_gate)
            LeaveLocked(use);
    }

    private void LeaveLocked(Use use)
    {
        if (use.IsCounted)
            _count--;
        use.IsCounted = false;
        UnlistLocked(use);
    }

    private void UnlistLocked(Use use)
    {
        if (use.Place is { } place)
            _unused.Remove(place);
        use.Place = null;
    }

    private void MarkUsed(Use use)
    {
        lock (_gate)
            UnlistLocked(use);
    }

#if GRPC_IN_TREE
    private sealed class Use(ConnectionLimit limit, ConnectionContext connection) : IConnectionUseFeature
#else
    private sealed class Use(ConnectionLimit limit, ConnectionContext connection)
#endif
    {
        public ConnectionContext Connection { get; } = connection;

        /// <summary>Its place among those that are unused; null: it is used, or not counted.</summary>
        public LinkedListNode<Use>? Place { get; set; }

        public bool IsCounted { get; set; }

#if GRPC_IN_TREE
        public ConnectionCalls Calls { get; } = new();
#endif

        public void MarkUsed()
        {
            if (Volatile.Read(ref _isUsed))
                return;
            Volatile.Write(ref _isUsed, true);
            limit.MarkUsed(this);
        }

        private bool _isUsed;
    }
}
