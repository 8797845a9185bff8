using KvCluster.Client;
using Microsoft.Extensions.Configuration;

namespace KvCluster.Extensions.Configuration;

/// <summary>
/// The settings of a program as the keys with a prefix, which it watches. Settings stay as they are while the cluster is away. They change with all changes of
/// one message at once, so those of one write are seen together. Loaded by whoever builds the configuration; the watch runs on the pool until it is disposed.
/// </summary>
internal sealed class KvConfigurationProvider : ConfigurationProvider, IDisposable
{
    /// <summary>Before a watch that has ended begins anew.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(1);

    private readonly KvClient _client;
    private readonly bool _isOwn;
    private readonly KvConfigurationOptions _options;
    private readonly KvKey _prefix;
    private readonly CancellationTokenSource _stopped = new();
    private readonly TaskCompletionSource _loaded = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private Task? _loop;
    private volatile Exception? _lastFailure;

    /// <param name="client">Makes the watch.</param>
    /// <param name="isOwn">Whether the client ends with this.</param>
    /// <param name="options">The options.</param>
    public KvConfigurationProvider(KvClient client, bool isOwn, KvConfigurationOptions options) =>
        (_client, _isOwn, _options, _prefix) = (client, isOwn, options, options.Prefix);

    /// <exception cref="InvalidOperationException">The cluster did not answer in time, and the configuration is not optional.</exception>
    public override void Load()
    {
        // The settings are followed from the first time on.
        if (_loop is not null)
            return;
        _loop = Task.Run(RunAsync);
        if (_loaded.Task.Wait(_options.StartTimeout) || _options.Optional)
            return;
        Dispose();
        throw new InvalidOperationException(
            $"The configuration below '{_options.Prefix}' was not read from the cluster within {_options.StartTimeout}. Check the connection string and the "
            + $"cluster, or set {nameof(KvConfigurationOptions.Optional)} to start without it.", _lastFailure);
    }

    public void Dispose()
    {
        _stopped.Cancel();
        if (_isOwn)
            _client.Dispose();
    }

    private async Task RunAsync()
    {
        while (!_stopped.IsCancellationRequested)
        {
            try
            {
                await FollowAsync().ConfigureAwait(false);
            }
            catch (Exception failure)
            {
                // Unless the program ends, or a client that is not this one's does.
                if (failure is not (OperationCanceledException or ObjectDisposedException))
                    Report(failure);
            }
            await Task.Delay(Pause, _stopped.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    // A watch that begins anew replaces the settings only when it has all of them.
    private async Task FollowAsync()
    {
        var (values, isComplete) = (new SortedDictionary<KvKey, string>(), false);
        await foreach (var message in _client.WatchAsync(new KvWatch { Prefix = _prefix, Initial = true }, _stopped.Token).ConfigureAwait(false))
        {
            if (message.Forget is { } range)
                Remove(values, range.Start, range.End);
            foreach (var change in message.Events)
                Apply(values, change);
            isComplete |= message.IsInitialComplete;
            if (isComplete && (message.Events.Count > 0 || message.IsInitialComplete))
                Publish(values);
        }
    }

    private void Apply(SortedDictionary<KvKey, string> values, KvEvent change)
    {
        switch (change.Kind)
        {
            case KvEventKind.Put:
                // The key is a part of its message, which must not stay for it.
                if (Read(change) is { } text)
                    values[change.Key.ToArray()] = text;
                else
                    values.Remove(change.Key);
                break;
            case KvEventKind.Delete:
                values.Remove(change.Key);
                break;
            case KvEventKind.DeleteRange:
                Remove(values, change.Key, change.RangeEnd);
                break;
        }
    }

    private string? Read(KvEvent put)
    {
        try
        {
            _ = put.Key.ToUtf8String();
            return put.Value.ToUtf8String();
        }
        catch (FormatException failure)
        {
            Report(new FormatException($"The setting {put.Key} is left out, because it or its value is not text.", failure));
            return null;
        }
    }

    private static void Remove(SortedDictionary<KvKey, string> values, KvKey start, KvKey end)
    {
        foreach (var key in values.Keys.Where(key => key.CompareTo(start) >= 0 && (end.IsEmpty || key.CompareTo(end) < 0)).ToList())
            values.Remove(key);
    }

    private void Publish(SortedDictionary<KvKey, string> values)
    {
        var settings = new Dictionary<string, string?>(StringComparer.OrdinalIgnoreCase);
        foreach (var (key, text) in values)
        {
            // Of settings that differ in the case of letters only, one counts: the last key.
            if (key.Length > _prefix.Length)
                settings[new KvKey(key.Memory[_prefix.Length..]).ToUtf8String().Replace("/", ConfigurationPath.KeyDelimiter, StringComparison.Ordinal)] = text;
        }
        var before = Data;
        Data = settings;
        // A watch that begins anew mostly finds what there was.
        if (_loaded.Task.IsCompleted
            && settings.Count == before.Count && settings.All(setting => before.TryGetValue(setting.Key, out var text) && text == setting.Value))
            return;
        try
        {
            OnReload();
        }
        catch (Exception failure)
        {
            // Of whoever was told, such as the validation of options.
            Report(failure);
        }
        // Not before, or whoever builds the configuration could go on, and be told of a change that it has seen.
        _loaded.TrySetResult();
    }

    private void Report(Exception failure)
    {
        _lastFailure = failure;
        _options.OnFailure?.Invoke(failure);
    }
}
