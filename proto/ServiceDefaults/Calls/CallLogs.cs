// The log of a server on gRPC's packages. They log each call that is cancelled or refused, and each request that cannot be parsed, so callers could fill a log;
// an operator cannot act on these messages. ASP.NET Core makes an activity for each request while its log of requests is on. Any thread.
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Omits what callers cause. What remains of gRPC are warnings and failures of handlers.</summary>
/// <param name="inner">Gets the rest; owned by the caller.</param>
internal sealed class CallLogs(ILoggerFactory inner) : ILoggerFactory
{
    private const string OfRequests = "Microsoft.AspNetCore.Hosting.Diagnostics";
    private const string OfGrpc = "Grpc.";

    public void AddProvider(ILoggerProvider provider) => inner.AddProvider(provider);

    public ILogger CreateLogger(string categoryName) =>
        categoryName == OfRequests ? NullLogger.Instance
        : categoryName.StartsWith(OfGrpc, StringComparison.Ordinal) ? new Failures(inner.CreateLogger(categoryName))
        : inner.CreateLogger(categoryName);

    public void Dispose()
    {
        // Nothing here is its own.
    }

    private sealed class Failures(ILogger inner) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => inner.BeginScope(state);

        public bool IsEnabled(LogLevel logLevel) => logLevel >= LogLevel.Warning && inner.IsEnabled(logLevel);

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            if (IsEnabled(logLevel))
                inner.Log(logLevel, eventId, state, exception, formatter);
        }
    }
}
