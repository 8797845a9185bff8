using System.Diagnostics;
using System.Text.Json;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>One run of all cases of a foreign client against our server. Each test checks its own case.</summary>
public abstract class InteropClientRun : IAsyncLifetime
{
    /// <summary>What each client's script runs.</summary>
    public static readonly TheoryData<string> Cases =
    [
        "empty_unary", "large_unary", "client_streaming", "server_streaming",
        "duplex_streaming", "empty_stream", "cancel_before_first_message", "cancel_after_first_message",
        "deadline_exceeded_on_sleeping_server", "status_code_and_message", "special_status_message", "unimplemented_method",
        "unimplemented_service", "custom_metadata", "request_too_large", "response_too_large",
        "compressed_request", "server_dies_mid_stream",
    ];

    private readonly Dictionary<string, string?> _failures = [];
    private string _errors = "";

    /// <summary>Why the client cannot run here, or null if it can.</summary>
    protected abstract string? SkipReason { get; }

    public async Task InitializeAsync()
    {
        if (SkipReason is not null)
            return;
        await using var server = await EchoServer.StartAsync();
        using var client = Start(server.Port);
        var errors = client.StandardError.ReadToEndAsync();
        while (await client.StandardOutput.ReadLineAsync() is { } line)
        {
            using var result = JsonDocument.Parse(line);
            _failures.Add(result.RootElement.GetProperty("name").GetString()!, result.RootElement.GetProperty("failure").GetString());
        }
        await client.WaitForExitAsync();
        _errors = await errors;
        await Eventually.TrueAsync(() => server.Service.Open == 0, "every handler returns when its client is gone");
    }

    public Task DisposeAsync() => Task.CompletedTask;

    public void AssertPassed(string name)
    {
        Assert.True(_failures.TryGetValue(name, out var failure), $"The client did not run '{name}': {_errors}");
        Assert.True(failure is null, failure);
    }

    /// <summary>Starts the client with its output and errors redirected. It prints a line of JSON for each case and exits.</summary>
    protected abstract Process Start(int port);
}
