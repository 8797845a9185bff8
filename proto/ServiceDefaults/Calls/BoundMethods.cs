// The methods of a service as gRPC's server package serves them: bound to the service's one instance, and with a deserializer that says whose mistake a
// message is that cannot be parsed. The package's own binding ends such calls, as well as those whose handler fails to parse something else, with the same
// exception. Runs once for each service, when it is mapped.
using Google.Protobuf;
using Grpc.AspNetCore.Server;
using Grpc.AspNetCore.Server.Model;
using Grpc.Core;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Routing;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Finds the methods of a service.</summary>
/// <param name="services">The server's, with the host's error for requests that cannot be parsed, if it has one.</param>
/// <param name="activator">Has the instance.</param>
internal sealed class BoundMethods<TService>(IServiceProvider services, IGrpcServiceActivator<TService> activator) : IServiceMethodProvider<TService>
    where TService : class
{
    /// <exception cref="InvalidOperationException">The type has no generated base class.</exception>
    public void OnServiceMethodDiscovery(ServiceMethodProviderContext<TService> context) =>
        ServiceBinding.Bind(activator.Create(services).Instance, new Binder(context, services.GetService<UnreadableRequest>()));

    private sealed class Binder(ServiceMethodProviderContext<TService> context, UnreadableRequest? unreadable) : ServiceBinderBase
    {
        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse>? handler) =>
            context.AddUnaryMethod(Parsed(method), PostOnly(), (_, request, call) => handler!(request, call));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse>? handler) =>
            context.AddClientStreamingMethod(Parsed(method), PostOnly(), (_, requests, call) => handler!(requests, call));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse>? handler) =>
            context.AddServerStreamingMethod(Parsed(method), PostOnly(), (_, request, responses, call) => handler!(request, responses, call));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse>? handler) =>
            context.AddDuplexStreamingMethod(Parsed(method), PostOnly(), (_, requests, responses, call) => handler!(requests, responses, call));

        private static List<object> PostOnly() => [new HttpMethodMetadata([HttpMethods.Post])];

        private Method<TRequest, TResponse> Parsed<TRequest, TResponse>(Method<TRequest, TResponse> method)
            where TRequest : class
            where TResponse : class
        {
            var requests = method.RequestMarshaller;
            var parse = requests.ContextualDeserializer;
            var parsed = new Marshaller<TRequest>(requests.ContextualSerializer, message => Parse(parse, message));
            return new Method<TRequest, TResponse>(method.Type, method.ServiceName, method.Name, parsed, method.ResponseMarshaller);
        }

        private TRequest Parse<TRequest>(Func<DeserializationContext, TRequest> parse, DeserializationContext message)
        {
            try
            {
                return parse(message);
            }
            catch (Exception failure) when (failure is not RpcException)
            {
                if (failure is InvalidProtocolBufferException && unreadable is not null)
                    throw unreadable.ToException();
                throw new RpcException(new Status(StatusCode.Internal, "Failed to deserialize the message.", failure));
            }
        }
    }
}
