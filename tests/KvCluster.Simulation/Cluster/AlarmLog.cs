using KvCluster.Node.Shards.Context;
using Microsoft.Extensions.Logging;

namespace KvCluster.Simulation.Cluster;

/// <summary>The log of a node's replica, of which only alarms count.</summary>
/// <param name="alarm">Called for each alarm, in the work item that raises it.</param>
internal sealed class AlarmLog(Action<string> alarm) : ILogger
{
    public IDisposable? BeginScope<TState>(TState state)
        where TState : notnull => null;

    public bool IsEnabled(LogLevel logLevel) => logLevel >= LogLevel.Error;

    public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
    {
        if (eventId.Name == nameof(ShardLog.Alarm))
            alarm(formatter(state, exception));
    }
}
