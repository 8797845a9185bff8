using System.Buffers;
using System.Collections.Concurrent;
using System.ComponentModel;
using System.Diagnostics.CodeAnalysis;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Text;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// How values of each type are read and written, in the order of the hybrid cache of .NET: by the serializer that is a service, by that of a factory among the
/// services, text and bytes as they are, and everything else as JSON. Any thread.
/// </summary>
internal sealed class HybridSerializers
{
    /// <summary>Text with half of a surrogate pair would be another one when it is read.</summary>
    private static readonly UTF8Encoding Utf8 = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    private readonly ConcurrentDictionary<Type, object> _known = new();
    private readonly IServiceProvider _services;
    private readonly Lazy<JsonSerializerOptions> _json;

    public HybridSerializers(IServiceProvider services)
    {
        _services = services;
        _json = new Lazy<JsonSerializerOptions>(() => JsonOf(services));
    }

    public IHybridCacheSerializer<T> Of<T>() => (IHybridCacheSerializer<T>)_known.GetOrAdd(typeof(T), _ => Find<T>());

    /// <summary>Whether a value can be given to several callers, because none can change it.</summary>
    public static bool IsImmutable<T>() => typeof(T) == typeof(string) || !RuntimeHelpers.IsReferenceOrContainsReferences<T>()
        || (typeof(T).IsSealed && typeof(T).GetCustomAttribute<ImmutableObjectAttribute>(inherit: false) is { Immutable: true });

    private object Find<T>()
    {
        if (_services.GetService<IHybridCacheSerializer<T>>() is { } registered)
            return registered;
        foreach (var factory in _services.GetServices<IHybridCacheSerializerFactory>())
        {
            if (factory.TryCreateSerializer<T>(out var made))
                return made;
        }
        if (typeof(T) == typeof(string))
            return new TextSerializer();
        if (typeof(T) == typeof(byte[]))
            return new BytesSerializer();
        return new JsonOfType<T>((JsonTypeInfo<T>)_json.Value.GetTypeInfo(typeof(T)));
    }

    [UnconditionalSuppressMessage("Trimming", "IL2026", Justification = "Programs without reflection register options with a resolver, or serializers.")]
    [UnconditionalSuppressMessage("AOT", "IL3050", Justification = "Programs without reflection register options with a resolver, or serializers.")]
    private static JsonSerializerOptions JsonOf(IServiceProvider services)
    {
        // The key under which the hybrid cache of .NET looks for them, too.
        var options = services.GetKeyedService<JsonSerializerOptions>(typeof(IHybridCacheSerializer<>)) ?? JsonSerializerOptions.Default;
        if (!options.IsReadOnly)
            options.MakeReadOnly(populateMissingResolver: true);
        return options;
    }

    private sealed class TextSerializer : IHybridCacheSerializer<string>
    {
        public string Deserialize(ReadOnlySequence<byte> source) => Utf8.GetString(source);

        public void Serialize(string value, IBufferWriter<byte> target) => Utf8.GetBytes(value, target);
    }

    private sealed class BytesSerializer : IHybridCacheSerializer<byte[]>
    {
        public byte[] Deserialize(ReadOnlySequence<byte> source) => source.ToArray();

        public void Serialize(byte[] value, IBufferWriter<byte> target) => target.Write(value);
    }

    private sealed class JsonOfType<T>(JsonTypeInfo<T> type) : IHybridCacheSerializer<T>
    {
        public T Deserialize(ReadOnlySequence<byte> source)
        {
            var reader = new Utf8JsonReader(source);
            return JsonSerializer.Deserialize(ref reader, type)!;
        }

        public void Serialize(T value, IBufferWriter<byte> target)
        {
            using var writer = new Utf8JsonWriter(target);
            JsonSerializer.Serialize(writer, value, type);
        }
    }
}
